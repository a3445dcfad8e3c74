"""Hugging Face's Trainer, which has one collate function for training and evaluation."""

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader
from transformers import Trainer

import pinfeed
from trainers import arguments_in

COUNT, SIDE = 12, 8
rng = np.random.default_rng(0)
IMAGES = rng.integers(0, 256, (COUNT, SIDE + 4, SIDE + 4, 3), np.uint8)
LABELS = rng.integers(0, 2, COUNT)
DATASET = pinfeed.ArrayDataset({"pixel_values": IMAGES, "labels": LABELS})


class Classifier(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(3 * SIDE * SIDE, 2)

    def forward(self, pixel_values, labels):
        logits = self.linear(pixel_values.flatten(1))
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}


def image(augment):
    return {"pixel_values": pinfeed.Image([0.5] * 3, [0.5] * 3, augment=augment)}


TRAINING = pinfeed.Collate(image(pinfeed.augment.RandomCrop(SIDE)))
EVALUATION = pinfeed.Collate(image(pinfeed.augment.CenterCrop(SIDE)))


def trainer_in(folder, eval_dataset=DATASET, **options):
    arguments = arguments_in(
        folder,
        per_device_train_batch_size=4,
        per_device_eval_batch_size=5,
        num_train_epochs=1,
        remove_unused_columns=False,
        **options,
    )
    return Trainer(
        Classifier(),
        arguments,
        train_dataset=DATASET,
        eval_dataset=eval_dataset,
        data_collator=TRAINING,
    )


def evaluate_without_augmentation(trainer):  # as in the guide
    plain = Trainer(
        trainer.model, trainer.args, data_collator=EVALUATION, eval_dataset=trainer.eval_dataset
    )
    trainer.get_eval_dataloader = plain.get_eval_dataloader
    trainer.get_test_dataloader = plain.get_test_dataloader


def loss_by_hand(model, labels=LABELS):
    """Returns the loss for the center of each image, computed without pinfeed."""
    middle = IMAGES[:, 2:-2, 2:-2].astype(np.float64) / 255
    pixels = torch.from_numpy((middle - 0.5) / 0.5).permute(0, 3, 1, 2).float()
    with torch.no_grad():
        return model(pixels, torch.from_numpy(labels))["loss"].item()


@pytest.mark.parametrize("trains", [False, True])
def test_evaluation_with_a_separate_collate(trains, tmp_path):
    shared = trainer_in(tmp_path).evaluate()["eval_loss"]
    strategy = "epoch" if trains else "no"
    trainer = trainer_in(tmp_path, eval_strategy=strategy)
    evaluate_without_augmentation(trainer)
    assert shared != pytest.approx(loss_by_hand(trainer.model), rel=1e-3)  # random crops
    if trains:
        trainer.train()
        result = [entry["eval_loss"] for entry in trainer.state.log_history if "eval_loss" in entry]
        assert result[-1] == pytest.approx(loss_by_hand(trainer.model), rel=1e-5)
    for _ in range(2):
        assert trainer.evaluate()["eval_loss"] == pytest.approx(
            loss_by_hand(trainer.model), rel=1e-5
        )
    predicted = trainer.predict(DATASET).metrics["test_loss"]
    assert predicted == pytest.approx(loss_by_hand(trainer.model), rel=1e-5)
    assert trainer.get_train_dataloader().collate_fn is TRAINING


def test_evaluation_of_several_datasets(tmp_path):
    """Each loss is the loss of its own dataset."""
    labels = {"one": LABELS, "two": 1 - LABELS, "other": np.zeros_like(LABELS)}
    datasets = {
        name: pinfeed.ArrayDataset({"pixel_values": IMAGES, "labels": values})
        for name, values in labels.items()
    }
    other = datasets.pop("other")
    trainer = trainer_in(tmp_path, datasets)
    evaluate_without_augmentation(trainer)
    expected = {name: loss_by_hand(trainer.model, labels[name]) for name in labels}
    assert len({round(loss, 3) for loss in expected.values()}) == 3
    losses = trainer.evaluate()
    for name in datasets:
        assert losses[f"eval_{name}_loss"] == pytest.approx(expected[name], rel=1e-5)
    assert trainer.evaluate(other)["eval_loss"] == pytest.approx(expected["other"], rel=1e-5)


class Rows(torch.nn.Linear):
    """A model that records the rows it is trained on."""

    def __init__(self):
        super().__init__(1, 1)
        self.rows = []

    def forward(self, x, row):
        self.rows.append(row.tolist())
        return {"loss": super().forward(x).square().mean()}


def trained_rows(folder, is_from_numpy, checkpoint=None):
    arrays = {"x": np.zeros((12, 1), np.float32), "row": np.arange(12)}
    loader = pinfeed.from_numpy(arrays, 4, shuffle=True, seed=0, device="cpu")
    if not is_from_numpy:
        dataset = pinfeed.ArrayDataset(arrays)
        sampler = pinfeed.samplers.ShuffleSampler(dataset, batch_size=4, seed=0)
        plain = DataLoader(dataset, batch_sampler=sampler, collate_fn=pinfeed.Collate())
        loader = pinfeed.DeviceLoader(plain, "cpu")
    trainer = Trainer(Rows(), arguments_in(folder, num_train_epochs=3, save_steps=1))
    trainer.get_train_dataloader = lambda: loader
    trainer.train(resume_from_checkpoint=checkpoint)
    return trainer.model.rows


@pytest.mark.parametrize("is_from_numpy", [True, False])
def test_resume_in_and_between_epochs(is_from_numpy, tmp_path):
    rows = trained_rows(tmp_path, is_from_numpy)
    assert len(rows) == 9
    for step in (2, 3, 4, 6):
        assert (
            trained_rows(tmp_path / "again", is_from_numpy, tmp_path / f"checkpoint-{step}")
            == rows[step:]
        )
