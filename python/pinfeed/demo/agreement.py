"""Agreement: whether the two runs were the same run but for the feed."""

from dataclasses import dataclass

import torch

from pinfeed.demo.feeds import training_loader
from pinfeed.demo.patches import PatchFiles
from pinfeed.demo.progress import Progress
from pinfeed.demo.training import SEED, Run

#: The feeds round differently (one fused multiply-add against three operations): 2 units in the last
#: place of values below 4.
BATCH_TOLERANCE = 1e-6
TRAINING_ACCURACY_TOLERANCE = 0.01
#: Overlapping held-out patches succeed and fail together, so this accuracy moves in larger steps.
HELD_OUT_ACCURACY_TOLERANCE = 0.03


@dataclass(frozen=True)
class BatchAgreement:
    """How one epoch of batches compares: largest difference of a pixel, and equality of labels."""

    batches: int
    max_difference: float
    labels_equal: bool

    @property
    def holds(self) -> bool:
        """Whether these are the same batches."""
        return self.labels_equal and self.max_difference <= BATCH_TOLERANCE


def compare_batches(files: PatchFiles) -> BatchAgreement:
    """Reads the first epoch of both runs side by side and compares every value of every batch."""
    stock = training_loader("stock", files, SEED)
    pinfeed = training_loader("pinfeed", files, SEED)
    labels_equal = True
    max_difference = torch.zeros(())
    with Progress("comparing batches", total=len(stock), unit="batch") as bar:
        for expected, actual in zip(stock, pinfeed, strict=True):
            difference = (expected["image"] - actual["image"]).abs().max()
            # Unlike max(), torch.maximum keeps a NaN, and a NaN then fails the check.
            max_difference = torch.maximum(max_difference, difference)
            labels_equal = labels_equal and torch.equal(expected["label"], actual["label"])
            bar.advance()
    return BatchAgreement(len(stock), max_difference.item(), labels_equal)


def accuracies_agree(stock: Run, pinfeed: Run) -> bool:
    """Tells whether the trained models are equally good, on patches seen and on patches held out."""
    training = abs(stock.training_accuracy - pinfeed.training_accuracy)
    held_out = abs(stock.held_out_accuracy - pinfeed.held_out_accuracy)
    return training <= TRAINING_ACCURACY_TOLERANCE and held_out <= HELD_OUT_ACCURACY_TOLERANCE
