"""Saves a loader in the middle of an epoch, and resumes, with accelerate."""

import numpy as np
import pinfeed
from accelerate import Accelerator

arrays = {"row": np.arange(1000)}
accelerator = Accelerator(cpu=True)
loader = pinfeed.from_numpy(arrays, 50, shuffle=True, device="cpu")
accelerator.register_for_checkpointing(loader)
rows = next(iter(loader))["row"].tolist()
accelerator.save_state("accelerate")
accelerator.load_state("accelerate")  # or in a new process
rows += [row for batch in loader for row in batch["row"].tolist()]
print(sorted(rows) == list(range(1000)))  # True
