"""Images, their boxes and masks in the loops of accelerate, Lightning and transformers' Trainer."""

from pathlib import Path

from programs import run_python

FRAMEWORKS = """
import sys
sys.path[:0] = sys.argv[2:]

from watched_loops import in_accelerate, in_lightning, in_trainer, seen
import torch
from torch.utils.data import DataLoader
import pinfeed
import test_objects as tests

collate = pinfeed.Collate(tests.recipe(), seed=3)

def with_lists(samples):
    batch = collate(samples)
    labels = pinfeed.functional.unbind({key: batch.pop(key) for key in ("boxes", "labels", "masks")})
    return batch | {"labels": labels}

def new_loader(collate):
    sampler = pinfeed.samplers.ShuffleSampler(12, 4, seed=1)
    dataset = pinfeed.IndexedDataset(tests.Photos())
    return DataLoader(dataset, batch_sampler=sampler, collate_fn=collate)

parts = torch.utils._pytree.tree_leaves  # all tensors of a batch

for run, collate_fn, *folder in (
    (in_accelerate, collate), (in_lightning, collate), (in_trainer, with_lists, sys.argv[1])
):
    seen.clear()
    run(new_loader(collate_fn), 2, *folder)
    loader = new_loader(collate_fn)
    for ours, theirs in zip([*loader, *loader], seen, strict=True):
        assert theirs.keys() == ours.keys()
        for one, other in zip(parts(ours), parts(theirs), strict=True):
            assert torch.equal(one, other)
    print(run.__name__)
"""


def test_epochs_of_frameworks(tmp_path):
    """Each epoch has its own crops, equal to a plain loop's."""
    here = Path(__file__).parent
    paths = (here, here.parent, here.parent / "fields")
    printed = run_python(FRAMEWORKS, str(tmp_path), *map(str, paths))
    names = [line for line in printed.splitlines() if line.startswith("in_")]
    assert names == ["in_accelerate", "in_lightning", "in_trainer"]
