"""A Keras model learns the same from a loader as from arrays."""

from typing import NamedTuple

import numpy as np
import pytest
from torch.utils.data import DataLoader

import pinfeed
from programs import run_program

SAMPLES, BATCH, EPOCHS = 70, 16, 2
MEAN, STD = (0.5, 0.4, 0.3), (0.25, 0.3, 0.35)

rng = np.random.default_rng(0)
IMAGES = rng.integers(0, 256, (SAMPLES, 12, 10, 3), np.uint8)
LABELS = rng.integers(0, 3, SAMPLES)
AGES = rng.random((SAMPLES, 2), np.float32)


class Training(NamedTuple):
    losses: list[float]  # of every epoch
    validation: list[float]
    weights: list[np.ndarray]


@pytest.fixture(scope="module")
def keras():
    import keras

    return keras


@pytest.fixture(scope="module")
def model(keras):
    """Returns models with the same weights and a dict input of images and ages."""

    def model():
        keras.utils.set_random_seed(0)
        image = keras.Input((12, 10, 3), name="image")
        age = keras.Input((2,), name="age")
        features = keras.layers.Conv2D(4, 3, activation="relu")(image)
        features = keras.layers.Concatenate()([keras.layers.Flatten()(features), age])
        network = keras.Model({"image": image, "age": age}, keras.layers.Dense(3)(features))
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        network.compile("adam", loss)
        return network

    return model


@pytest.fixture(scope="module")
def train(model):
    def train(*data, **keywords):
        network = model()
        history = network.fit(*data, shuffle=False, verbose=0, epochs=EPOCHS, **keywords).history
        return Training(history["loss"], history.get("val_loss", []), network.get_weights())

    return train


def arrays():
    images = pinfeed.functional.normalize(IMAGES, MEAN, STD, output="NHWC")
    return {"image": images, "age": AGES}, LABELS


@pytest.fixture(scope="module")
def expected(train):
    """Trains the model on the arrays."""
    training = train(*arrays(), batch_size=BATCH)
    assert training.losses[-1] < training.losses[0]
    return training


def loader(**keywords):
    # Not in alphabetical order, which TensorFlow uses.
    dataset = pinfeed.ArrayDataset(({"image": IMAGES, "age": AGES}, LABELS))
    collate = pinfeed.Collate(({"image": pinfeed.Image(MEAN, STD)}, None))
    return DataLoader(dataset, batch_size=BATCH, collate_fn=collate, **keywords)


def assert_same(actual, expected):
    assert actual.losses == expected.losses
    for one, other in zip(actual.weights, expected.weights, strict=True):
        np.testing.assert_array_equal(one, other)


CHANGES = {
    "as it is": lambda dataset: dataset,
    "prefetch": lambda dataset: dataset.prefetch(2),
    "map": lambda dataset: dataset.map(lambda x, y: (x, y + 0)),
    "cache": lambda dataset: dataset.cache(),
    "in memory": lambda dataset: dataset.batch(BATCH),
    "workers": lambda dataset: dataset,
}


@pytest.mark.parametrize("change", CHANGES)
def test_same_losses(change, train, expected):
    batches = loader(num_workers=2 * (change == "workers"))
    options = {"channels_last": True, "in_memory": change == "in memory"}
    assert_same(train(CHANGES[change](pinfeed.to_tensorflow(batches, **options))), expected)


def test_validation_evaluation_and_prediction(train, model):
    dataset = pinfeed.to_tensorflow(loader(), channels_last=True)
    x, y = arrays()
    actual = train(dataset, validation_data=dataset)
    history = train(x, y, batch_size=BATCH, validation_data=(x, y), validation_batch_size=BATCH)
    assert actual.validation == history.validation
    assert len(actual.validation) == EPOCHS
    network = model()
    assert network.evaluate(dataset, verbose=0) == network.evaluate(
        x, y, batch_size=BATCH, verbose=0
    )
    np.testing.assert_array_equal(
        network.predict(dataset, verbose=0), network.predict(x, batch_size=BATCH, verbose=0)
    )


def test_ragged_and_padded_batches(keras):
    """Widths differ between batches, and padding is ignored."""
    lengths = rng.integers(1, 9, SAMPLES)
    tokens = [rng.integers(1, 20, length) for length in lengths]
    pairs = zip(tokens, LABELS.astype(np.float32), strict=True)
    samples = [{"tokens": one, "label": label} for one, label in pairs]

    def losses(field):
        collate = pinfeed.Collate({"tokens": field})
        batches = DataLoader(samples, batch_size=BATCH, collate_fn=collate)
        dense = lambda x: x.to_tensor() if hasattr(x, "to_tensor") else x
        dataset = pinfeed.to_tensorflow(batches).map(lambda x: (dense(x["tokens"]), x["label"]))
        keras.utils.set_random_seed(0)
        embedding = keras.layers.Embedding(20, 4, mask_zero=True)
        pooling = keras.layers.GlobalAveragePooling1D()
        network = keras.Sequential([embedding, pooling, keras.layers.Dense(1)])
        network.compile("sgd", "mse")
        return network.fit(dataset, epochs=EPOCHS, shuffle=False, verbose=0).history["loss"]

    assert losses(pinfeed.Jagged()) == losses(pinfeed.Pad(pad_value=0))


def test_same_losses_on_torch():
    """With the line from the Keras page."""
    assert run_program("keras_on_torch") == "3\n"
