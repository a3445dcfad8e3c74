"""Arguments of transformers' Trainer for tests."""

import transformers


def arguments_in(folder, kind=transformers.TrainingArguments, **options):
    """Returns arguments on the CPU, without reports; they save nothing except by request."""
    defaults = {"save_strategy": "steps" if "save_steps" in options else "no"}
    quiet = {"use_cpu": True, "report_to": "none", "disable_tqdm": True}
    return kind(str(folder), **defaults | quiet | {"dataloader_pin_memory": False} | options)
