"""Stops in the middle of an epoch, and resumes, with Hugging Face Trainer."""

from pathlib import Path

import numpy as np
import pinfeed
import torch
import transformers

arrays = {"x": np.zeros((1000, 8), np.float32), "row": np.arange(1000)}
rows = []


class WithoutLength:
    """A loader without a length, so that Trainer counts only steps."""

    def __init__(self, loader):
        self.loader = loader

    def __iter__(self):
        is_empty = True
        while is_empty:  # saved at the end of an epoch, the first pass is empty
            for batch in self.loader:
                is_empty = False
                yield batch


class SaveLoader(transformers.TrainerCallback):
    def __init__(self, loader):
        self.loader = loader

    def on_save(self, args, state, control, **options):
        folder = Path(args.output_dir, f"checkpoint-{state.global_step}")
        torch.save(self.loader.state_dict(), folder / "loader.pt")


class Regression(torch.nn.Linear):
    def forward(self, x, row):
        rows.extend(row.tolist())
        return {"loss": super().forward(x).square().mean()}


def train(batch_size, max_steps, checkpoint=None):
    loader = pinfeed.from_numpy(arrays, batch_size, shuffle=True, device="cpu")
    if checkpoint is not None:
        loader.load_state_dict(torch.load(Path(checkpoint, "loader.pt")))
    arguments = transformers.TrainingArguments(
        "trainer",
        max_steps=max_steps,
        save_steps=30,
        ignore_data_skip=True,  # the loader resumes by itself
        use_cpu=True,
        report_to="none",
    )
    trainer = transformers.Trainer(
        Regression(8, 1), arguments, callbacks=[SaveLoader(loader)]
    )
    trainer.get_train_dataloader = lambda: WithoutLength(loader)
    trainer.train(resume_from_checkpoint=checkpoint)


train(50, max_steps=30)  # stops in the middle of the second epoch
# 500 rows remain, which are 20 batches of 25
train(25, max_steps=30 + 20, checkpoint="trainer/checkpoint-30")
print(sorted(rows[:1000]) == sorted(rows[1000:]) == list(range(1000)))  # True
