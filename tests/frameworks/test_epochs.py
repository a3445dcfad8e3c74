"""Lightning, accelerate and Trainer over our samplers: each epoch has crops of its own."""

from pathlib import Path

from programs import run_python

FRAMEWORKS = """
import sys
sys.path[:0] = sys.argv[2:]

from watched_loops import in_lightning, in_trainer, seen
import accelerate
from torch.utils.data import DataLoader

import pinfeed
import test_epochs_to_collate as tests

def new_loader():
    sampler = pinfeed.ShuffleSampler(tests.COUNT, 7)
    return DataLoader(tests.ARRAYS, batch_sampler=sampler, collate_fn=tests.new_collate())

def in_accelerate():
    loader = accelerate.Accelerator(cpu=True).prepare(new_loader())
    for _ in range(4):
        seen.extend(loader)

steps = len(new_loader())
for name, run in {
    "Lightning": lambda: in_lightning(new_loader(), 4),
    "accelerate": in_accelerate,
    "Trainer": lambda: in_trainer(new_loader(), 4, sys.argv[1]),
}.items():
    seen.clear()
    run()
    assert len(seen) == 4 * steps, (name, len(seen))
    loops = (tests.by_index(seen[i : i + steps]) for i in range(0, len(seen), steps))
    tests.assert_epochs(loops, tests.crops_of_epochs())
    print("ran", name)
"""


def test_frameworks_that_set_the_epoch(tmp_path: Path) -> None:
    """Lightning, accelerate and transformers' Trainer see the epochs that a plain loop sees."""
    here = Path(__file__).parent
    paths = (here, here.parent, here.parent / "samplers")
    printed = run_python(FRAMEWORKS, str(tmp_path), *map(str, paths), fresh=True)
    names = [line for line in printed.splitlines() if line.startswith("ran ")]
    assert names == ["ran Lightning", "ran accelerate", "ran Trainer"]
