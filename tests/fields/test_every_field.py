"""Tests of all fields: equal batches from samples, rows and workers; pickling; errors."""

import pickle

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import pinfeed
from arrays import random_array
from messages import check
from pinfeed import (
    ArrayDataset,
    Collate,
    Image,
    Jagged,
    Keep,
    Mask,
    Pack,
    Pad,
    Patches,
    RaggedArray,
    Stack,
    augment,
)
from samples import assert_same
from unusable import fake, freed, wrapped

pytestmark = [pytest.mark.kernels, pytest.mark.filterwarnings("ignore:Collate. samples repeat")]

PHOTOS = [random_array((9, 7, 3), seed=i) for i in range(6)]
UNEVEN = [random_array((4 + i, 9 - i, 3), seed=i) for i in range(6)]
MASKS = [photo[..., 0] for photo in PHOTOS]
UNEVEN_MASKS = [photo[..., 0] for photo in UNEVEN]
ROWS = [random_array((5, 3), np.int32, seed=i) for i in range(6)]
FRAMES = [np.arange(12.0).reshape(6, 2)[: (3, 0, 6, 1, 2, 4)[i]] + i for i in range(6)]
TOKENS = [np.arange(10 * i, 10 * i + n) for i, n in enumerate((3, 1, 7, 2, 2, 4))]
VIEW = augment.Compose([augment.RandomCrop(4), augment.RandomHorizontalFlip()])
RESIZED = augment.Compose([augment.RandomResizedCrop(8), augment.RandomHorizontalFlip()])
SIZES = augment.Compose([augment.RandomShortestSize((6, 9), 20), augment.RandomHorizontalFlip()])
COLORS = [
    augment.ColorJitter(0.9),
    augment.ColorJitter(0.4, (0.5, 0.5), 0.5),
    augment.RandomGrayscale(0.5),
]

# Each field, and samples for it.
FIELDS = {
    "Stack": (Stack(), ROWS),
    "Stack cast": (Stack(torch.float64), ROWS),
    "Stack scaled": (Stack(torch.bfloat16, scale=0.25), ROWS),
    "Image": (Image(0.5, [0.1, 0.2, 0.3]), PHOTOS),
    "Image bytes": (Image(dtype=torch.uint8, channels_last=True), PHOTOS),
    "Image padded": (Image(0.5, pad_value=-1, multiple_of=(8, 4), sizes=True, mask=True), UNEVEN),
    "Image, planes first": (Image(input="CHW", output="HWC", dtype=torch.float16), PHOTOS),
    "Image augmented": (Image(0.5, augment=VIEW), UNEVEN),
    "Image resized": (Image(augment=RESIZED, interpolation="bicubic"), PHOTOS),
    "Image of any size": (Image(0.5, augment=[SIZES, *COLORS], pad_value=0), UNEVEN),
    "Image of other colors": (Image(dtype=torch.uint8, augment=COLORS), PHOTOS),
    "Image erased": (Image(0.5, augment=augment.RandomErasing(value=[7, 8, 9])), PHOTOS),
    "Mask": (Mask(), MASKS),
    "Mask augmented": (Mask(augment=RESIZED, fill=9, dtype=torch.int32), MASKS),
    "Mask of any size": (Mask(augment=SIZES, pad_value=-1, multiple_of=4), UNEVEN_MASKS),
    "Patches": (Patches(2, 0.5, 0.25, min_pixels=16, max_pixels=64, grid="grid"), UNEVEN),
    "Patches augmented": (Patches(2, augment=VIEW, min_pixels=16, max_pixels=64), UNEVEN),
    "Pad": (Pad(), TOKENS),
    "Pad left": (Pad(pad_value=-1, side="left", mask=True, multiple_of=4, dtype=torch.int32), TOKENS),
    "Pad of frames": (Pad(pad_value=1.5, axes=0, max_length=4), FRAMES),
    "Jagged": (Jagged(), FRAMES),
    "Jagged cut": (Jagged(torch.float32, max_length=2, side="left"), TOKENS),
    "Pack": (Pack(seq_length=None, first_token=-100, dtype="int32"), TOKENS),
    "Keep": (Keep(), TOKENS),
}  # fmt: skip
every_field = pytest.mark.parametrize(("field", "samples"), FIELDS.values(), ids=FIELDS)
NATIVE = {name: case for name, case in FIELDS.items() if name != "Keep"}
every_native_field = pytest.mark.parametrize(("field", "samples"), NATIVE.values(), ids=NATIVE)


def collate_of(field):
    return Collate({"entry": field}, seed=0)


def dataset_of(samples):
    """Returns a dataset of the samples as arrays, where possible."""
    if len({sample.shape for sample in samples}) == 1:
        return ArrayDataset({"entry": np.stack(samples)})
    if len({sample.shape[1:] for sample in samples}) == 1:
        return ArrayDataset({"entry": RaggedArray.from_sequences(samples)})
    pytest.skip("no source has samples that differ along all axes")


def with_indices(samples, order=None):
    """Returns the samples with their indices, so that random draws repeat."""
    result = pinfeed.IndexedDataset([{"entry": sample} for sample in samples])
    return result.__getitems__(range(len(samples)) if order is None else order)


@every_field
def test_samples_and_rows_of_any_kind_agree(field, samples, isa):
    order = [2, 0, 2, 1, 5]
    expected = collate_of(field)(with_indices(samples, order))
    fixed = [sample.copy() for sample in samples]
    for sample in fixed:
        sample.flags.writeable = False
    tensors = [torch.from_numpy(sample) for sample in samples]
    views = [np.repeat(sample, 2, -1)[..., ::2] for sample in samples]
    for kind in (fixed, tensors, views):
        batch = collate_of(field)(with_indices(kind, order))
        if not isinstance(field, Keep):
            assert_same(batch, expected)
    if isinstance(field, Image) and len({s.shape for s in samples}) > 1:
        return  # no source has samples that differ along all axes
    rows = dataset_of(samples).__getitems__(order)
    for batch_of_samples in (rows, list(rows) if field.is_random is False else rows):
        assert_same(collate_of(field)(batch_of_samples), expected)


# Equal arrays in other memory layouts.
LAYOUTS = {
    "Fortran order": np.asfortranarray,
    "every other, from the end": lambda a: np.repeat(a[::-1], 2, 0)[::-2],
    "steps": lambda a: np.repeat(a, 2, -1)[..., ::2],
    "mirrored": lambda a: a[:, ::-1, ..., ::-1].copy()[:, ::-1, ..., ::-1],
    "a crop": lambda a: np.pad(a, 1)[(slice(1, -1),) * a.ndim],
    "channels first": lambda a: np.moveaxis(np.moveaxis(a, -1, 1).copy(), 1, -1),
    "tensor": torch.from_numpy,
    "tensor, transposed": lambda a: torch.from_numpy(a).mT.contiguous().mT,
}


@every_native_field
@pytest.mark.parametrize("layout", [*LAYOUTS, "file"])
def test_rows_of_any_layout(field, samples, layout, tmp_path):
    if len({sample.shape for sample in samples}) > 1:
        return  # arrays can't contain these
    array, order = np.stack(samples), [2, 0, 2, 1, 5]
    np.save(tmp_path / "entry.npy", array)
    source = tmp_path / "entry.npy" if layout == "file" else LAYOUTS[layout](array)
    batch = collate_of(field)(ArrayDataset({"entry": source}).__getitems__(order))["entry"]
    expected = collate_of(field)(with_indices(samples, order))["entry"]
    assert_same(batch, expected)
    assert batch.stride() == expected.stride()


@every_native_field
def test_any_number_of_threads(field, samples, num_threads):
    """Batches are large enough for several threads and streaming stores; also one large sample."""
    large = [np.tile(sample, (60, 15, 1)[: sample.ndim]) for sample in samples] * 8
    batches = [collate_of(field)(with_indices(some)) for some in (large, large[:1])]
    pinfeed.set_num_threads(1)
    assert_same(batches, [collate_of(field)(with_indices(some)) for some in (large, large[:1])])


class OfEveryField:
    """A dataset with samples for all fields, so that they share workers."""

    def __init__(self):
        self.datasets = {
            name: pinfeed.IndexedDataset([{"entry": sample} for sample in samples])
            for name, (_, samples) in NATIVE.items()
        }
        self.collates = {name: collate_of(field) for name, (field, _) in NATIVE.items()}

    def __len__(self):
        return 6

    def __getitems__(self, indices):
        return {name: data.__getitems__(indices) for name, data in self.datasets.items()}

    def collate(self, rows):
        return {name: collate(rows[name]) for name, collate in self.collates.items()}


@pytest.mark.processes
@pytest.mark.parametrize("count", [1, 6])
def test_workers_return_equal_batches(count):
    data = OfEveryField()
    here, there = (
        list(DataLoader(data, count, collate_fn=data.collate, num_workers=workers))
        for workers in (0, 2)
    )
    assert_same(there, here)


@every_field
def test_fields_pickle_and_evaluate_their_repr(field, samples):
    names = {**vars(augment), **vars(pinfeed), "torch": torch}  # both have a Pad
    again = [pickle.loads(pickle.dumps(field)), eval(repr(field), names)]
    for one in (*again, field.from_key("x").allow_missing()):
        assert repr(one).startswith(repr(field))
    for one in again:
        assert_same(
            collate_of(one)(with_indices(samples)), collate_of(field)(with_indices(samples))
        )
    data = pickle.dumps(collate_of(field))
    assert len(data) < 4000
    assert repr(pickle.loads(data)) == repr(collate_of(field))
    assert repr(field.from_key("x").allow_missing()) == f"{field!r}.from_key('x').allow_missing()"


@every_native_field
def test_the_batch_does_not_share_memory_with_samples(field, samples):
    before = [sample.copy() for sample in samples]
    dicts = [{"entry": sample, "other": 1} for sample in samples]
    batch = Collate({"entry": field})(dicts)["entry"]
    for part in batch if isinstance(batch, tuple) else [batch]:
        if part is not None:
            part.zero_()
    assert_same(samples, before)
    assert [set(sample) for sample in dicts] == [{"entry", "other"}] * len(samples)


@every_field
def test_the_default_device_of_torch_is_ignored(field, samples):
    expected = collate_of(field)(with_indices(samples))
    torch.set_default_device("meta")
    try:
        actual = collate_of(field)(with_indices(samples))
    finally:
        torch.set_default_device(None)
    assert_same(actual, expected)


fake_of = lambda array: fake(torch.from_numpy(array))
freed_of = lambda array: freed(torch.from_numpy(array))

# Samples that differ from the first, and words of the message.
MISFITS = {
    "None": (lambda _: None, TypeError, "got NoneType"),
    "text": (lambda _: "text", TypeError, "got str"),
    "an object": (lambda _: object(), TypeError, "got object"),
    "another rank": (lambda a: a[None, None], ValueError, "as in sample 0"),
    "a scalar": (lambda a: a.reshape(-1)[0][()], TypeError, "got "),
    "0-d": (lambda a: np.array(1, a.dtype), ValueError, ""),
    "objects": (lambda a: a.astype(object), TypeError, "object"),
    "dates": (lambda a: np.zeros(a.shape, "M8[s]"), TypeError, "datetime64"),
    "long doubles": (lambda a: a.astype(np.longdouble), TypeError, "float128"),
    "byte-swapped": (lambda a: a.astype(">i8"), TypeError, "byte order"),
    "meta": (lambda a: torch.from_numpy(a).to("meta"), TypeError, "CPU"),
    "sparse": (lambda a: torch.from_numpy(a).to_sparse(), TypeError, ""),
    "fake": (fake_of, (TypeError, RuntimeError), ""),
    "wrapped": (lambda a: wrapped(torch.from_numpy(a)), (TypeError, RuntimeError), ""),
    "freed": (freed_of, TypeError, ""),
}


@every_native_field
@pytest.mark.parametrize("misfit", MISFITS.values(), ids=MISFITS)
def test_errors_name_the_sample_that_does_not_fit(field, samples, misfit):
    make, error, words = misfit
    if isinstance(field, Stack) and make in (fake_of, freed_of):
        return  # torch raises for samples that Stack rejects
    if isinstance(field, Patches) and make(samples[0]) is None:
        return  # a sample without an image
    batch = [*samples[:2], make(samples[2]), *samples[3:]]
    words = "sample 2", words
    check(
        lambda: collate_of(field)(with_indices(batch)),
        error,
        "Collate: entry ['entry'] of ",
        *words,
    )


@every_native_field
def test_another_dtype_among_samples(field, samples):
    if isinstance(field, Stack):
        return  # it stacks and casts like torch
    batch = [*samples[:2], samples[2].astype(np.complex64)]
    words = ["Collate: entry ['entry'] of sample 2", "complex64"]
    check(lambda: collate_of(field)(with_indices(batch)), TypeError, *words)


@every_native_field
def test_a_collate_works_after_an_error(field, samples):
    expected = collate_of(field)(with_indices(samples))
    collate = collate_of(field)
    for _ in range(20):
        with pytest.raises(TypeError):
            collate(with_indices([*samples, object()]))
    assert_same(collate(with_indices(samples)), expected)


@every_field
def test_no_samples(field, samples):
    for empty in ([], (), dataset_of(ROWS).__getitems__([])):
        words = "Collate: expected at least one sample, got an empty batch"
        check(lambda empty=empty: collate_of(field)(empty), ValueError, words)


DTYPES = {
    "Stack": (lambda dtype: Stack(dtype), [row % 1000 for row in ROWS]),
    "Image": (lambda dtype: Image(0.5, dtype=dtype), PHOTOS),
    "Patches": (lambda dtype: Patches(3, 0.5, dtype=dtype, grid=False), [PHOTOS[0][:, :6]]),
    "Pad": (lambda dtype: Pad(dtype=dtype), TOKENS),
    "Jagged": (lambda dtype: Jagged(dtype), TOKENS),
    "Pack": (lambda dtype: Pack(seq_length=None, dtype=dtype), TOKENS),
}


@pytest.mark.parametrize(("make", "samples"), DTYPES.values(), ids=DTYPES)
def test_a_dtype_by_every_name(make, samples):
    """All fields accept torch and NumPy dtypes, and their names."""
    expected = Collate(make(torch.float16))(samples)
    entry = expected[0] if isinstance(expected, tuple | list) else expected
    assert entry.dtype == torch.float16
    for dtype in (np.float16, np.dtype("f2"), "float16"):
        assert_same(Collate(make(dtype))(samples), expected)
    for wrong in ("float17", 3.5, [1], object, "float128"):
        message = (
            "dtype must be (a torch or NumPy dtype|a dtype that torch has|numeric or bool), got"
        )
        with pytest.raises(TypeError, match=message):
            make(wrong)


def test_layouts_with_and_without_the_batch_axis():
    """Image and normalize accept each other's layouts."""
    planes = [np.ascontiguousarray(photo.transpose(2, 0, 1)) for photo in PHOTOS]
    expected = Collate(Image(0.5))(PHOTOS)
    assert_same(Collate(Image(0.5, input="NCHW", output="NCHW"))(planes), expected)
    assert_same(Collate(Image(0.5, input="CHW"))(planes), expected)
    batch = pinfeed.functional.normalize(
        torch.from_numpy(np.stack(planes)), 0.5, input="CHW", output="CHW"
    )
    assert_same(batch, expected)
    frames = pinfeed.functional.normalize(np.stack(PHOTOS)[None], input="THWC", output="TCHW")
    np.testing.assert_array_equal(frames, pinfeed.functional.normalize(np.stack(PHOTOS))[None])
