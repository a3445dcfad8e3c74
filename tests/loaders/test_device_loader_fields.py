"""Fields on whole batches equal fields on samples, natively and with the ops."""

import functools
import itertools
import re

import numpy as np
import pytest
import torch

import pinfeed
from messages import check
from pinfeed import Collate, Image, Jagged, JaggedBatch, Pad, Stack
from pinfeed.loaders.device_loader import DeviceLoader
from pinfeed.loaders.transfer import tensors_in
from samples import FrozenRecord, Point, assert_same

RNG = np.random.default_rng(0)
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@pytest.fixture(params=["native", "ops"])
def backend(request, monkeypatch):
    """Sets how fields are applied; "ops" as on CUDA, but in host memory."""
    if request.param == "ops":

        def image(field, batch, host, entry):
            field._require_images(batch, entry.name)
            return field._apply_with_ops(batch, entry.name)

        def pad(field, batch, host, entry):
            return field._apply_with_ops(batch, host.offsets, entry)

        monkeypatch.setattr(Image, "apply", image)
        monkeypatch.setattr(Pad, "apply", pad)
    return request.param


def applied(fields, batch):
    (result,) = DeviceLoader([batch], "cpu", fields=fields)
    return result


def steps(tensor):
    """Returns the strides of axes longer than 1."""
    if tensor.numel() == 0:
        return []
    return [step for step, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1]


def images(layout, channels=3, count=4):
    shape = {"HWC": (5, 7, channels), "CHW": (channels, 5, 7), "HW": (5, 7)}[layout]
    return list(RNG.integers(0, 256, (count, *shape), np.uint8))


def tokens(dtype=np.int64, shape=(), empty=False):
    lengths = [0, 0, 0] if empty else [3, 0, 7, 1, 4]
    return [RNG.integers(0, 100, (length, *shape)).astype(dtype) for length in lengths]


# Fields, and samples for them, by their feature.


def layouts_of_images():
    outputs = ({}, {"channels_last": True}, {"output": "HWC"})
    for layout, output, dtype in itertools.product(["HWC", "CHW", "HW"], outputs, IMAGE_DTYPES):
        numbers = {} if dtype == torch.uint8 else {"mean": 0.45, "std": 0.22}
        yield Image(input=layout, dtype=dtype, **numbers, **output), images(layout)


def every_byte_of_every_channel():
    bytes_ = [*np.arange(256, dtype=np.uint8).reshape(1, 16, 16, 1).repeat(3, -1)]
    for dtype in IMAGE_DTYPES[:3]:
        yield Image(MEAN, STD, dtype=dtype), bytes_
        yield Image(0.5, (1e-4, 1.0, 1e4), scale=3.0, dtype=dtype), bytes_


def numbers_of_channels():
    for channels in (1, 2, 3, 4, 5, 13):
        mean = np.linspace(0.1, 0.6, channels)
        yield Image(mean, 0.25, input="HWC"), images("HWC", channels)
        yield Image(mean, 0.25, input="CHW", output="HWC"), images("CHW", channels)


def options_of_pad():
    for options, shape, empty in itertools.product(PADS, [(), (3,), (2, 2)], [False, True]):
        options = {"pad_value": 9, "lengths": True, "mask": True} | options
        yield Pad(**options), tokens(shape=shape, empty=empty)
    for shape, mask in itertools.product([(), (3,)], [False, True]):
        first = -1 - len(shape)  # counted from the end
        for axes in (first, (first,)):
            yield Pad(pad_value=9, axes=axes, mask=mask), tokens(shape=shape)
    for dtype, lengths, mask in itertools.product(DTYPES, [None, False, True], [False, True]):
        yield Pad(pad_value=1, lengths=lengths, mask=mask), tokens(dtype)


def unsigned_integers_beyond_the_signed_ones():
    for dtype, side in itertools.product(UNSIGNED, ["right", "left"]):
        largest = int(np.iinfo(dtype).max)
        samples, high = [largest - sample for sample in tokens(dtype)], largest // 2 + 1
        for value in (0, 1.0, True, high, *([] if dtype is np.uint64 else [largest])):
            yield Pad(pad_value=value, side=side, lengths=True, mask=True), samples
        yield Pad(pad_value=0.5, side=side, dtype=torch.float64), samples
        yield Pad(pad_value=high, side=side, dtype=getattr(torch, dtype.__name__)), tokens()


def keys_beside_an_entry():
    fields = {"ids": Pad(lengths="lengths", mask="attention_mask")}
    yield fields, [{"ids": sample} for sample in tokens()]


IMAGE_DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.uint8]
UNSIGNED = [np.uint16, np.uint32, np.uint64]
DTYPES = [np.bool_, np.uint8, np.int16, np.float32, np.float64, np.complex64, *UNSIGNED]
PADS = [
    *({"pad_value": 0}, {"pad_value": -7}, {"side": "left"}, {"max_length": 4}, {"multiple_of": 8}),
    *({"axes": 0}, {"axes": (0,), "max_length": 4}, {"max_length": 4, "side": "left"}),
    {"multiple_of": 4, "max_length": 5, "side": "left"},
    *({"pad_value": 0.5, "dtype": dtype} for dtype in (torch.float32, torch.bfloat16)),
    *({"pad_value": 0.5, "scale": 0.1, "dtype": dtype} for dtype in (None, torch.float16)),
]
CASES = [
    *(layouts_of_images, every_byte_of_every_channel, numbers_of_channels),
    *(options_of_pad, unsigned_integers_beyond_the_signed_ones, keys_beside_an_entry),
]


@pytest.mark.parametrize("cases", CASES)
def test_fields_on_a_batch_equal_collating_with_them(cases, backend):
    for fields, samples in cases():
        before = Stack() if isinstance(fields, Image) else Jagged()
        before = {"ids": before} if isinstance(fields, dict) else before
        expected = Collate(fields)(samples)
        result = applied(fields, Collate(before)(samples))
        assert_same(result, expected, repr(fields))
        for one, other in zip(tensors_in(result), tensors_in(expected), strict=True):
            assert steps(one) == steps(other), fields


def test_images_from_any_strides(backend):
    batch = torch.from_numpy(RNG.integers(0, 256, (4, 9, 11, 3), np.uint8))
    views = {
        "cropped": batch[:, 1:-2, 3:],
        "mirrored": batch.flip(2),
        "BGR": batch.flip(3),
        "every second": batch[::2, ::2, ::2],
        "channels first": batch.permute(0, 3, 1, 2).contiguous().permute(0, 2, 3, 1),
    }
    for name, view in views.items():
        expected = pinfeed.functional.normalize(view, MEAN, STD)
        assert_same(applied(Image(MEAN, STD), view), expected, name)


@pytest.mark.parametrize("layout", ["HWC", "CHW", "HW"])
def test_no_images(layout, backend):
    some = Collate(Stack())(images(layout))
    bytes_, half = {"output": "HWC", "dtype": torch.uint8}, {"dtype": torch.bfloat16}
    for options in ({}, {"channels_last": True} | half, bytes_):
        field = Image(input=layout, **options)
        assert_same(applied(field, some[:0]), applied(field, some)[:0])
    with pytest.raises(TypeError, match="uint8"):
        applied(Image(input=layout), some[:0].float())


def test_fields_ignore_the_modes_of_the_consumer(backend):
    pixels = torch.from_numpy(np.stack(images("HWC")))
    texts = Collate(Jagged())([np.arange(n) / 3 for n in (3, 1, 6)])
    for field, batch in [
        (Image(MEAN, STD, dtype=torch.float16), pixels),
        (Image(MEAN, STD, channels_last=True), pixels),
        (Pad(multiple_of=4, mask=True), texts),
        (Pad(side="left", max_length=2, dtype=torch.float16, lengths=False), texts),
    ]:
        expected = applied(field, batch)
        with torch.autocast("cpu", torch.bfloat16), torch.device("meta"):
            result = applied(field, batch)
        assert_same(result, expected)


def test_a_dict_entry_is_padded_without_lengths(backend):
    batch = Collate({"ids": Jagged()})([{"ids": sample} for sample in tokens()])
    assert isinstance(applied({"ids": Pad()}, batch)["ids"], torch.Tensor)
    assert isinstance(applied(Pad(), batch["ids"]), pinfeed.Padded)


def test_fields_mirror_the_batch():
    image, label = torch.zeros(2, 4, 4, 3, dtype=torch.uint8), torch.arange(2)
    expected = pinfeed.functional.normalize(image)
    for batch, fields in (
        ([image, label], (Image(), None)),
        ([image, label], [Image(), None]),
        ((image, label), (Image(), None)),
        (Point(image, label), Point(Image(), None)),
        (FrozenRecord(image, label), FrozenRecord(Image(), None)),
        ({"x": image, "label": label}, {"x": Image()}),
        ({"a": {"x": image}, "label": label}, {"a": {"x": Image()}}),
    ):
        result = applied(fields, batch)
        assert type(result) is type(batch)
        first, *others = tensors_in(result)
        assert_same(first, expected)
        assert all(entry is label for entry in others)


# Invalid fields and batches.


IMAGE = torch.zeros(2, 4, 4, 3, dtype=torch.uint8)
JAGGED = JaggedBatch(torch.arange(3), torch.tensor([0, 2, 3]))
NO_BATCHES = "must be a field that takes whole"
NO_FIELD = r"must be a Field such as Image\(\), or None"


@pytest.mark.parametrize(
    ("field", "message"),
    [
        *((field, NO_BATCHES) for field in (Jagged(), pinfeed.Keep())),
        *((field, NO_FIELD) for field in (3, "image", Image, torch.float32)),
    ],
    ids=repr,
)
def test_fields_that_do_not_support_batches(field, message):
    with pytest.raises(TypeError, match=rf"fields\['x'\] {message}"):
        DeviceLoader([], fields={"x": field})


@pytest.mark.parametrize(
    ("fields", "batches", "words"),
    [
        ({"x": Pad(lengths="y"), "y": Image()}, [], "two fields for the key 'y'"),
        ([Pad(lengths="y")], [], "needs a dict"),
        ({"x": Pad(lengths="y")}, [{"x": JAGGED, "y": 1}], "entry ['x'] adds the key 'y'"),
        ({"x": Image()}, [{"y": 0}], "expected keys of batches, ['y'], got 'x'"),
        ((Image(),), [[0, 0]], "fields: expected 2 entries, as in batches, got 1;"),
        (
            {"x": Image()},
            [torch.zeros(1)],
            "fields must be a field for the Tensor in batches, got a dict",
        ),
    ],
)
def test_fields_that_do_not_mirror_the_batch(fields, batches, words):
    check(lambda: list(DeviceLoader(batches, "cpu", fields=fields)), ValueError, words)


def jagged(values):
    return JAGGED._replace(values=values)


PAIRS = jagged(torch.ones(3, 2))
LARGEST = jagged(torch.tensor([1, 2, 2**64 - 1], dtype=torch.uint64))
ARRAYS = JaggedBatch(JAGGED.values.numpy(), JAGGED.offsets.numpy())
BEYOND_FLOAT = f"float64 holds, got {2**64 - 1}; pad on the CPU"
NOT_ZERO = "axes must be 0 or None"
# A field, a batch for it, the error, and words of its message.
MISFITS = {
    "double images": (Image(), IMAGE.double(), TypeError, "uint8"),
    "wider images": (Image(), IMAGE.to(torch.uint16), TypeError, "got uint16"),
    "masks": (Image(dtype=torch.int64), IMAGE, TypeError, "collate_fn"),
    "padding": (Image(pad_value=0), IMAGE, TypeError, "pad_value is for images of different sizes"),
    "clips": (Image(input="THWC", output="CTHW"), IMAGE[None], TypeError, "collate_fn"),
    "no channels": (Image(), IMAGE[0], ValueError, "(N, H, W, C), got (4, 4, 3)"),
    "channels of another number": (Image(MEAN), IMAGE[..., :2], ValueError, "mean"),
    "uncastable": (Pad(dtype=torch.int64), jagged(torch.ones(3)), TypeError, "cast"),
    "no such value": (Pad(pad_value=-1), jagged(IMAGE[0, 0, 0]), ValueError, "got -1"),
    "floats to scale": (
        Pad(scale=2),
        jagged(torch.ones(3)),
        TypeError,
        "integers to scale, got float32",
    ),
    "no samples": (Pad(), JaggedBatch(torch.ones(0), torch.tensor([0])), ValueError, "sample"),
}
NO_JAGGED = "entry ['x']: expected a JaggedBatch of tensors, which Jagged() makes"
ONLY_NATIVE = {
    "an ndarray": (Image(), IMAGE.numpy(), TypeError, "['x']: expected a tensor of images for Image()"),
    "images": (Pad(), IMAGE, TypeError, NO_JAGGED),
    "ndarrays": (Pad(), ARRAYS, TypeError, NO_JAGGED),
}  # fmt: skip
ONLY_BY_OPS = {
    "two axes": (Pad(axes=(0, 1)), PAIRS, ValueError, NOT_ZERO),
    "axis 1": (Pad(axes=1), PAIRS, ValueError, NOT_ZERO),
    "the last axis": (Pad(axes=-1), PAIRS, ValueError, NOT_ZERO),
    "an axis twice": (Pad(axes=(-2, -2)), PAIRS, ValueError, NOT_ZERO),
    "more than a float64": (Pad(pad_value=2**64 - 1), LARGEST, ValueError, BEYOND_FLOAT),
}


@pytest.mark.parametrize("kind", MISFITS | ONLY_NATIVE | ONLY_BY_OPS)
def test_entries_that_a_field_rejects(kind, backend):
    field, entry, error, words = (MISFITS | ONLY_NATIVE | ONLY_BY_OPS)[kind]
    if backend == "native" and kind in ("two axes", "more than a float64"):
        assert len(applied(field, entry).values) == 2
    elif kind not in (ONLY_BY_OPS if backend == "native" else ONLY_NATIVE):
        with pytest.raises(error, match=re.escape(words)) as caught:
            applied({"x": field}, {"x": entry})
        note = "DeviceLoader: raised while batch 0 was moved to the device"
        assert caught.value.__notes__ == [note]


# Padding keeps the value that the Collate wrote, or the field raises.

SMALL, LARGE = np.full((2, 3, 3), 200, np.uint8), np.full((4, 5, 3), 100, np.uint8)
padded = functools.partial(Image, dtype=torch.uint8, pad_value=0)
BYTES = padded()
NORMAL = Image(MEAN, STD, input="CHW")
FROM_HWC = Image(MEAN, STD)


def padded_loader(fields, wrap=lambda image: image, **options):
    samples = [wrap(SMALL), wrap(LARGE)] * 2
    return torch.utils.data.DataLoader(samples, 2, collate_fn=Collate(fields), **options)


def alone(image):
    return image


def in_a_dict(image):
    return {"x": image}


INSIDE = pinfeed.Padded(FROM_HWC, None, None)
NORMALIZED_PADDING = {
    "alone": (BYTES, NORMAL, alone, ""),
    "in a dict": ({"x": BYTES}, {"x": NORMAL}, in_a_dict, "['x']"),
    "in a tuple": ((BYTES, None), [NORMAL, None], lambda image: (image, 1), "[0]"),
    "deep": ({"a": (BYTES,)}, {"a": (NORMAL,)}, lambda image: {"a": (image,)}, "['a'][0]"),
    "of another entry": ({"y": BYTES.from_key("x")}, {"y": NORMAL}, in_a_dict, "['y']"),
    "named mask": ({"x": padded(mask="m")}, {"x": NORMAL}, in_a_dict, "['x']"),
    "sizes inside": (padded(sizes=True), INSIDE._replace(values=NORMAL), alone, ".values"),
    "channels last": (padded(output="HWC"), FROM_HWC, alone, ""),
    "one channel of three": (BYTES, Image((0, 0, 0.5), input="CHW"), alone, ""),
    "1": (padded(pad_value=1), NORMAL, alone, ""),
    "gray": (padded(pad_value=114), NORMAL, alone, ""),
    "white": (padded(pad_value=255), Image(input="CHW"), alone, ""),
    "zeros": (padded(pad_value=(0, 0, 0)), NORMAL, alone, ""),
    "the mean color": (padded(pad_value=(124, 116, 104)), NORMAL, alone, ""),
    "gray by Pad": (Pad(pad_value=114, axes=(0, 1)), INSIDE, alone, ".values"),
    "Pad": (Pad(axes=(0, 1)), INSIDE, alone, ".values"),
    "Pad in a dict": ({"x": Pad(pad_value=0, axes=(0, 1))}, {"x": FROM_HWC}, in_a_dict, "['x']"),
}


@pytest.mark.parametrize("kind", NORMALIZED_PADDING)
def test_fields_that_would_normalize_padding(kind):
    before, fields, wrap, position = NORMALIZED_PADDING[kind]
    loader = padded_loader(before, wrap)
    for batches in (loader, DeviceLoader(loader, "cpu")):
        with pytest.raises(ValueError, match="must not normalize padding, got Image") as caught:
            DeviceLoader(batches, "cpu", fields=fields)
        assert str(caught.value).startswith(f"DeviceLoader: fields{position} must")


def test_errors_show_the_value_of_normalized_padding():
    with pytest.raises(ValueError, match=r"turns pad_value=0 .* into -2\.12; normalize in the Co"):
        DeviceLoader(padded_loader(BYTES), fields=NORMAL)
    color = padded(pad_value=(124, 116, 104))
    with pytest.raises(ValueError, match=r"turns pad_value=124 .* into 0\.00557; normalize in"):
        DeviceLoader(padded_loader(color), fields=NORMAL)


@pytest.mark.parametrize("workers", [0, 2])
def test_two_fixes_for_normalizing_padded_images(workers):
    one, other = (
        DeviceLoader(padded_loader({"x": field}, in_a_dict, num_workers=workers), "cpu")
        for field in (Image(MEAN, STD, pad_value=0, mask="mask"), padded(mask="mask"))
    )
    for _ in range(2):
        for in_collate, in_loop in zip(one, other, strict=True):
            images = pinfeed.functional.normalize(in_loop["x"], MEAN, STD, input="NCHW")
            assert (in_collate["x"][0, :, 2:] == 0).all()
            assert (images[0, :, 2:] < -1).all()
            outside = ~in_loop["mask"][:, None]
            assert_same(images.masked_fill(outside, 0), in_collate["x"])


@pytest.mark.parametrize(
    ("before", "fields"),
    [
        (BYTES, None),
        (BYTES, Image(input="CHW")),  # 0 stays 0
        (BYTES, Image(std=STD, input="CHW")),
        (padded(pad_value=7), Image(input="CHW", dtype=torch.uint8)),
        (padded(pad_value=7), Image(input="CHW", scale=1)),
        (Pad(axes=(0, 1), lengths=False), Image()),
    ],
)
def test_padding_that_keeps_its_value(before, fields):
    (batch, _) = DeviceLoader(padded_loader(before), "cpu", fields=fields)
    images = batch.permute(0, 3, 1, 2) if batch.shape[3] == 3 else batch
    padding = before.byte_padding
    assert (images[0, :, 2:] == padding).all()
    assert (images[0, :, :2, :3] != padding).all()


def test_images_with_other_padded_entries_are_normalized():
    wrap = lambda image: {"x": image, "y": image[:2, :3], "ids": image[0, 0]}
    fields = {"x": BYTES, "y": Image(dtype=torch.uint8), "ids": Pad()}
    loader = padded_loader(fields, wrap)
    expected = torch.from_numpy(pinfeed.functional.normalize(SMALL[None], MEAN, STD)[0])
    for batch in DeviceLoader(loader, "cpu", fields={"y": NORMAL}):
        assert_same(batch["y"][0], expected)
