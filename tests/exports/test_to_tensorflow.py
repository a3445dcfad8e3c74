"""to_tensorflow: every structure, dtype and kind of entry, by every path to an element."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, TensorDataset

import pinfeed
from arrays import random_array
from samples import STRUCTURES, MarkedTensor, Point, random_tensor
from tensorflow_elements import WAYS, assert_element, assert_tensor

NAMES = (
    *("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
)


def tensors(seed, size=3):
    rng = np.random.default_rng(seed)
    return random_tensor(rng, torch.float32, (size, 4)), random_tensor(rng, torch.int64, (size,))


def batches_of_dtypes():
    rng, batch = np.random.default_rng(0), {}
    for name in NAMES:
        batch[name] = random_tensor(rng, getattr(torch, name), (3, 5))
        if name != "bfloat16":
            batch[f"array of {name}"] = random_array((3, 5), name, rng)
    return [batch]


def jagged_batches(dtype):
    rng = np.random.default_rng(0)
    for total, offsets in [(5, [0, 2, 2, 5]), (0, [0, 0]), (3, [0, 3])]:
        boxes = pinfeed.JaggedBatch(random_tensor(rng, dtype, (total, 4)), torch.tensor(offsets))
        yield {"boxes": boxes, "label": torch.arange(len(offsets) - 1)}


def unaligned(tensor):
    """Returns an equal array at an address that TensorFlow never uses."""
    memory = torch.empty(4 * tensor.numel() + 128, dtype=torch.uint8)
    start = 68 - memory.data_ptr() % 64
    moved = memory[start : start + 4 * tensor.numel()].view(tensor.dtype).view(tensor.shape)
    assert moved.data_ptr() % 64 == 4
    return moved.copy_(tensor)


def read_only(array):
    array.flags.writeable = False
    return array


grid = torch.arange(24.0).reshape(4, 6)

BATCHES = {"dtypes": batches_of_dtypes()}
BATCHES |= {name: [make(*tensors(i)) for i in range(3)] for name, make in STRUCTURES.items()}
for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.bool):
    BATCHES[f"jagged, {dtype}"] = list(jagged_batches(dtype))
ALL = pinfeed.RaggedArray(np.array([1, 2, 3, 4, 5, 6]), np.array([0, 2, 2, 3, 6]))
PARTS = {  # of ragged values, and the start of their offsets
    "ragged": [(ALL[:2], [1, 2], [0, 2, 2]), (ALL[1:], [3, 4, 5, 6], [0, 0, 1, 4])],
    "jagged": [(pinfeed.JaggedBatch(torch.arange(6), torch.tensor([1, 2, 5])), [1, 2, 3, 4], [0, 1, 4])],
}  # fmt: skip
# An entry of the batch, and the expected tensor.
ARRAYS = {
    "0-d": (torch.tensor(3.5), torch.tensor(3.5)),
    "no samples": (torch.empty(0, 3), torch.empty(0, 3)),
    "nothing in a sample": (torch.empty(3, 0), torch.empty(3, 0)),
    "one sample": (grid[:1].clone(), grid[:1].clone()),
    "one of a transposed": (grid.t()[:, :1], grid[0][:, None].clone()),
    "transposed": (grid.t(), grid.t().contiguous()),
    "stepped": (grid[::2, ::3], grid[::2, ::3].clone()),
    "expanded": (torch.ones(1, 4).expand(3, 4), torch.ones(3, 4)),
    "part": (grid[1:], grid[1:].clone()),
    "unaligned": (unaligned(grid), grid),
    "unaligned ndarray": (unaligned(grid).numpy(), grid),
    "mirrored ndarray": (grid.numpy()[::-1, ::-1], grid.flip(0, 1)),
    "Fortran's order": (np.asfortranarray(grid.numpy()), grid),
    "read-only ndarray": (read_only(grid.numpy().copy()), grid),
    "big-endian ndarray": (grid.numpy().astype(">f4"), grid),
    "scalar of NumPy": (np.float64(0.1), torch.tensor(0.1, dtype=torch.float64)),
    "with gradients": (grid.clone().requires_grad_() * 1, grid),
    "conjugate": (torch.complex(grid, grid).conj(), torch.complex(grid, -grid)),
    "negative": (torch.complex(grid, grid).conj().imag, -grid),
    "of a subclass": (grid.as_subclass(MarkedTensor), grid),
}
EXPECTED = dict(BATCHES)
for name, (array, expected) in ARRAYS.items():
    BATCHES[name], EXPECTED[name] = [array, array], [expected, expected]
for name, parts in PARTS.items():
    BATCHES[f"part, {name}"] = [part for part, *_ in parts]
    EXPECTED[f"part, {name}"] = [
        pinfeed.JaggedBatch(*map(torch.tensor, values)) for _, *values in parts
    ]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", BATCHES)
def test_every_batch(name, way):
    elements = WAYS[way](pinfeed.to_tensorflow(BATCHES[name]))
    for element, batch in zip(elements, EXPECTED[name], strict=True):
        assert_element(element, batch)
        if name in ARRAYS:  # a kernel aborts the process if memory is unsuitable
            np.testing.assert_array_equal(element + element, (batch + batch).numpy())


entries = st.integers(0, 10**6).map(lambda seed: tensors(seed)[0])

names = st.text(st.sampled_from("abzAZ_0é ."), min_size=1, max_size=3)

structures = st.recursive(
    entries,
    lambda nodes: st.one_of(
        st.dictionaries(names, nodes, min_size=1, max_size=4),
        st.dictionaries(st.integers(-3, 3), nodes, min_size=1, max_size=2),
        st.lists(nodes, min_size=1, max_size=3),
        st.lists(nodes, min_size=1, max_size=3).map(tuple),
        st.tuples(nodes, nodes).map(lambda pair: Point(*pair)),
    ),
    max_leaves=8,
)


@given(structures)
def test_nested_structures(batch):
    dataset = pinfeed.to_tensorflow([batch])
    for element in (*dataset, *dataset.prefetch(1)):
        assert_element(element, batch)


@pytest.mark.parametrize("way", WAYS)
def test_strings_and_numbers(way, tf):
    batch = {
        "names": ["cat", "Bär", b"\x00\xff"],
        "tuple": ("a", "b", "c"),
        "array": np.array(["cat", "a longer one", ""]),
        "objects": np.array([["cat", b"dog"]], object),
        "name": "cat",
        "ints": [1, 2, 2**40],
        "floats": (0.5, 1, 2.5),
        "bools": [True, False, True],
        "int": 7,
        "float": 0.1,
        "none": None,
    }
    (element,) = WAYS[way](pinfeed.to_tensorflow([batch]))
    assert list(element) == list(batch)
    assert element.pop("none") is None
    result = {key: (value.dtype.name, np.asarray(value).tolist()) for key, value in element.items()}
    assert result == {
        "names": ("string", [b"cat", "Bär".encode(), b"\x00\xff"]),
        "tuple": ("string", [b"a", b"b", b"c"]),
        "array": ("string", [b"cat", b"a longer one", b""]),
        "objects": ("string", [[b"cat", b"dog"]]),
        "name": ("string", b"cat"),
        "ints": ("int64", [1, 2, 2**40]),
        "floats": ("float32", [0.5, 1.0, 2.5]),
        "bools": ("bool", [True, False, True]),
        "int": ("int64", 7),
        "float": ("float32", pytest.approx(0.1)),
    }


def test_bfloat16_and_lists_of_default_collate(tf):
    array = np.arange(6, dtype=tf.bfloat16.as_numpy_dtype).reshape(2, 3)
    (element,) = pinfeed.to_tensorflow([array])
    assert element.dtype == tf.bfloat16
    assert element.numpy().tobytes() == array.tobytes()
    # It returns lists for tuples, and tuples of strings; Keras expects (x, y) from the former.
    samples = [(np.ones(3, np.float32), 1, "a"), (np.zeros(3, np.float32), 0, "b")]
    ((x, y, name),) = pinfeed.to_tensorflow(DataLoader(samples, batch_size=2))
    assert x.numpy().tolist() == [[1, 1, 1], [0, 0, 0]]
    assert y.numpy().tolist() == [1, 0]
    assert name.numpy().tolist() == [b"a", b"b"]


def test_arrays_in_memory():
    collate = pinfeed.Collate({"tokens": pinfeed.Jagged(), "padded": pinfeed.Pad(lengths=True)})
    samples = [{"tokens": [1] * n, "padded": [2] * n, "name": str(n), "y": n} for n in (3, 0, 2, 5)]
    loader = DataLoader(samples, batch_size=3, collate_fn=collate)
    dataset = pinfeed.to_tensorflow(loader, in_memory=True)
    assert len(dataset) == 4
    for element, sample in zip(dataset, samples, strict=True):
        for key in ("tokens", "padded", "y"):
            assert element[key].numpy().tolist() == sample[key]
        assert element["name"].numpy() == sample["name"].encode()
    with pytest.raises(ValueError, match="loader: expected at least one batch, got none"):
        pinfeed.to_tensorflow([], in_memory=True)
    images = np.arange(42, dtype=np.int16).reshape(7, 2, 3)
    dataset = pinfeed.to_tensorflow(DataLoader(images, 3), in_memory=True)
    assert [batch.shape for batch in dataset.batch(4)] == [(4, 2, 3), (3, 2, 3)]
    shuffled = [int(sample[0, 0]) // 6 for sample in dataset.shuffle(7, seed=0)]
    assert shuffled != sorted(shuffled) == list(range(7))


DTYPES = ["float32", "float16", "float64", "uint8", "bfloat16"]


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("way", [*WAYS, "memory", "ndarray"])
def test_channels_last(name, way):
    if name == "bfloat16" and way not in WAYS:
        return  # a torch dtype without a NumPy equivalent
    for shape in [(2, 3, 4, 5), (1, 1, 1, 1), (3, 1, 4, 4), (2, 5, 1, 7)]:
        images = random_tensor(np.random.default_rng(0), getattr(torch, name), shape)
        batch = {"image": images, "grid": torch.zeros(shape)}
        if way == "ndarray":
            batch = {key: tensor.numpy() for key, tensor in batch.items()}
        in_memory = way == "memory"
        dataset = pinfeed.to_tensorflow([batch], channels_last="image", in_memory=in_memory)
        elements = list(dataset.batch(len(images))) if in_memory else WAYS.get(way, list)(dataset)
        assert_tensor(elements[0]["image"], images.permute(0, 2, 3, 1).contiguous())
        assert elements[0]["grid"].shape == shape


def test_which_channels_move():
    x = torch.zeros(2, 3, 4, 5)
    batch = {"uint8": x.byte(), "half": x.half(), "mask": x.bool(), "int64": x.long()}
    batch |= {"video": torch.zeros(2, 3, 4, 5, 6), "nested": [torch.zeros(2, 3, 4), {"x": x}]}

    def moved(channels_last):
        dataset = pinfeed.to_tensorflow([batch], channels_last=channels_last)
        for _ in dataset.prefetch(1):
            pass
        first, second = dataset.element_spec["nested"]
        specs = dataset.element_spec | {"nested.0": first, "nested.1.x": second["x"]}
        old = {"video": (None, 3, 4, 5, 6), "nested.0": (None, 3, 4)}
        return {
            name: tuple(spec.shape)
            for name, spec in specs.items()
            if name != "nested" and tuple(spec.shape) != old.get(name, (None, 3, 4, 5))
        }

    images = dict.fromkeys(("uint8", "half", "nested.1.x"), (None, 4, 5, 3))
    assert moved(True) == images
    assert moved(False) == moved([]) == {}
    assert moved("mask") == {"mask": (None, 4, 5, 3)}
    others = {"video": (None, 4, 5, 6, 3), "nested.0": (None, 4, 3), "int64": (None, 4, 5, 3)}
    assert moved([*others]) == others


def test_channels_last_with_a_signature(tf):
    images = torch.arange(120.0).reshape(2, 3, 4, 5)
    spec = tf.TensorSpec((2, 4, 5, 3))
    dataset = pinfeed.to_tensorflow([images], channels_last=True, signature=spec)
    assert dataset.element_spec == spec
    assert_tensor(next(iter(dataset)), images.permute(0, 2, 3, 1).contiguous())


def test_length_becomes_cardinality(tf):
    dataset = TensorDataset(torch.arange(10))
    loader = DataLoader(dataset, batch_size=4)
    assert len(pinfeed.to_tensorflow(loader)) == 3
    assert len(pinfeed.to_tensorflow(loader).repeat(2).prefetch(1)) == 6
    assert len(pinfeed.to_tensorflow(pinfeed.DeviceLoader(loader, device="cpu"))) == 3
    assert len(list(pinfeed.to_tensorflow(loader).prefetch(1))) == 3
    for unknown in (iter(loader), (batch for batch in loader)):
        cardinality = pinfeed.to_tensorflow(unknown).cardinality()
        assert cardinality == tf.data.UNKNOWN_CARDINALITY


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter(range(10))

    def __len__(self):
        return 10


def test_length_of_a_stream():
    assert len(pinfeed.to_tensorflow(DataLoader(Stream(), batch_size=4))) == 3
    # Each worker yields all of it, which len() doesn't show.
    dataset = pinfeed.to_tensorflow(DataLoader(Stream(), batch_size=4, num_workers=2))
    assert dataset.cardinality() < 0
    assert len(list(dataset)) == 6


@pytest.mark.parametrize("workers", [0, 2])
def test_images_and_their_masks(workers):
    pil = pytest.importorskip("PIL.Image")
    view = pinfeed.augment.RandomResizedCrop(16)
    options = {"output": "HWC", "dtype": torch.uint8, "interpolation": "nearest-exact"}
    collate = pinfeed.Collate((pinfeed.Image(augment=view, **options), pinfeed.Mask()))
    photos = [random_array((20, 24, 3), seed=i) for i in range(4)]
    samples = [(pil.fromarray(one), pil.fromarray(one[..., 0]).convert("P")) for one in photos]
    loader = DataLoader(samples, 2, collate_fn=collate, num_workers=workers)
    elements = [*pinfeed.to_tensorflow(loader)]
    assert len(elements) == 2
    for image, mask in elements:
        assert (mask.dtype.name, mask.shape.as_list()) == ("int64", [2, 16, 16])
        assert np.array_equal(image.numpy()[..., 0], mask.numpy())
