"""Native calls with invalid arguments raise, and write only into their output.

`make sanitize` runs this under AddressSanitizer, which also detects out-of-bounds reads.
"""

import ast
import copy
import os
import random
import types
from pathlib import Path

import hypothesis
import numpy as np
import PIL.Image
import pytest
import torch

import op_cases
import pinfeed
from pinfeed import (
    ArrayDataset,
    Boxes,
    Collate,
    ConcatArray,
    Image,
    IndexedDataset,
    InstanceMasks,
    Jagged,
    Mask,
    Pack,
    Pad,
    Patches,
    Points,
    RaggedArray,
    Stack,
    _core,
    augment,
)
from pinfeed.batches import Packing
from pinfeed.memory.shared_file import SharedIntegers
from pinfeed.samplers import PackSampler, ShuffleSampler, WeightedSampler

pytestmark = pytest.mark.kernels

REFUSALS = (TypeError, ValueError, IndexError, OverflowError, MemoryError, OSError)
REFUSALS += (AttributeError,)  # of an invalid plan

INTEGERS = [-(2**63), -(2**31), -1, 0, 1, 2, 3, 5, 17, 255, 2**62, 2**63 - 1, 2**64, 1.5, None, "1"]
REALS = [float("nan"), float("inf"), -1.0, 0.0, 0.5, 1.0, 40.0, 1e18, 1e300, None]
TEXTS = [
    "",
    "H",
    "HW",
    "HWC",
    "CHW",
    "TCHW",
    "HHW",
    "int64",
    "float64",
    "complex64",
    "uint8",
    "left",
]
TEXTS += ["nearest", "bicubic", "edge", "reflect", "resize", "resize_to_one_of", "iou_crop", "xywh"]
DTYPES = [np.int64, np.int32, np.uint8, np.float64, np.bool_]


class Guarded:
    """Output memory between guard bytes."""

    WALL, MOST = 4096, 1 << 24

    def __init__(self):
        self.given = []

    def __call__(self, shape, dtype):
        dtype = getattr(torch, dtype)
        size = int(np.prod(shape, dtype=object)) * dtype.itemsize
        if size > self.MOST:
            raise MemoryError(size)
        memory = torch.full((2 * self.WALL + size,), 0xA5, dtype=torch.uint8)
        self.given.append(memory)
        return memory[self.WALL : self.WALL + size].view(dtype).view(shape)

    def check(self):
        for memory in self.given:
            assert bool((memory[: self.WALL] == 0xA5).all())
            assert bool((memory[-self.WALL :] == 0xA5).all())


def state_of(options):
    state = options.__getstate__()
    return state[0] if isinstance(state, tuple) and isinstance(state[0], tuple) else state


def with_state(kind, state):
    instance = kind.__new__(kind)
    instance.__setstate__(state)
    return instance


def is_options(value):
    return type(value).__module__ == _core.__name__ and hasattr(type(value), "__setstate__")


def damaged_array(draw, array):
    array = array.copy()
    kind = draw.randrange(9)
    if kind <= 2 and array.size and array.dtype.kind in "iuf":
        # Wraps Python numbers that the dtype can't represent.
        number = draw.choice([-1, 0, 1, 2, 3, 17, 255, -(2**62), 2**62, 2**63 - 1])
        array.flat[draw.randrange(array.size)] = np.array(number).astype(array.dtype)
    elif kind <= 2 and array.size and array.dtype.kind == "b":
        array.view(np.uint8).flat[draw.randrange(array.size)] = draw.choice([0, 1, 2, 255])
    elif kind == 3:
        array = array[: draw.randrange(len(array) + 1)] if array.ndim else array[None]
    elif kind == 4:
        array = np.concatenate([array, array]) if array.ndim else array
    elif kind == 5:
        array = draw.choice([array[None], array[..., None], array.reshape(-1)])
    elif kind == 6:
        with np.errstate(invalid="ignore"):
            array = array.astype(draw.choice(DTYPES))
    elif kind == 7:
        array.flags.writeable = False
    else:
        array = np.broadcast_to(array[..., :1], array.shape) if array.ndim else array
        array = array[::-1] if array.ndim and draw.random() < 0.5 else array
    return array


def damaged(draw, value):
    """Returns a copy of an argument with one part damaged."""
    if isinstance(value, np.ndarray):
        return damaged_array(draw, value)
    if isinstance(value, torch.Tensor):
        return torch.from_numpy(np.array(damaged_array(draw, value.numpy())))
    if is_options(value):
        return with_state(type(value), damaged(draw, state_of(value)))
    if isinstance(value, Packing):
        name = draw.choice(value._fields)
        return value._replace(**{name: damaged(draw, getattr(value, name))})
    if isinstance(value, list | tuple) and value and draw.random() < 0.8:
        position = draw.randrange(len(value))
        return type(value)(
            [*value[:position], damaged(draw, value[position]), *value[position + 1 :]]
        )
    if isinstance(value, list | tuple):
        return draw.choice([value[:0], value[:-1], value + value])
    if isinstance(value, bool):
        return draw.choice([not value, None])
    if isinstance(value, float):
        return draw.choice(REALS)
    if isinstance(value, str):
        return draw.choice(TEXTS)
    return draw.choice(INTEGERS)


# Valid arguments, as our own code passes them.

FUNCTIONS = {
    name for name, value in vars(_core).items() if isinstance(value, types.BuiltinFunctionType)
}
#: They don't receive memory positions, or other tests call them.
OTHERS = {"active_isa", "available_cpus", "available_isas", "compiled_isas", "create_shared_file"}
OTHERS |= {"memmap_under", "require_whole_file", "check_array", "check_plain_array"}
NATIVE = sorted(FUNCTIONS - OTHERS)
STUB = ast.parse(Path(_core.__file__).with_name("_core.pyi").read_text())
PARAMETERS = {
    node.name: [argument.arg for argument in (*node.args.args, *node.args.kwonlyargs)]
    for node in STUB.body
    if isinstance(node, ast.FunctionDef)
}
VIEWS = [
    augment.RandomCrop((4, 5), padding=1, pad_if_needed=True, padding_mode="reflect"),
    augment.Compose([augment.CenterCrop((4, 5)), augment.RandomHorizontalFlip()]),
    augment.Compose([augment.RandomResizedCrop((4, 5)), augment.RandomVerticalFlip(1.0)]),
    augment.Compose([augment.Resize((4, 9)), augment.RandomHorizontalFlip()]),
    augment.RandomShortestSize((4, 5), 9),
    augment.RandomResize(4, 9),
    augment.ScaleJitter((4, 5)),
    augment.Compose([augment.Pad((1, 2, 0, 3), 0, "reflect"), augment.RandomCrop((4, 5))]),
    augment.ResizeKeepRatio((4, 5), 0.5, random_scale_prob=0.5, random_aspect_prob=0.5),
    augment.Compose([augment.RandomZoomOut(0, (1.0, 2.0), 1.0), augment.RandomIoUCrop()]),
]
COLORS = [augment.ColorJitter(0.5, saturation=1, p=0.5), augment.RandomGrayscale(0.5)]
PADDING = {"pad_value": 0, "multiple_of": 4, "sizes": True, "mask": True}
PHOTOS = [np.full((9, 7, 3), i, np.uint8) for i in range(3)]
UNEVEN = [np.full((4 + i, 9 - i, 3), i, np.uint8) for i in range(3)]
CLIPS = [np.stack([photo] * 2) for photo in PHOTOS]
TOKENS = [np.arange(7), np.arange(2), np.arange(5)]
FIELDS = [
    *((Stack(dtype), [np.ones((2, 4), np.int32)] * 3) for dtype in (None, torch.float32)),
    *((Image(augment=view, **PADDING), UNEVEN) for view in VIEWS[:-1]),
    (Image(0.5, augment=[VIEWS[3], *COLORS]), PHOTOS),
    (Image(augment=VIEWS[3], interpolation="nearest", dtype=torch.uint8), PHOTOS),
    (Image(0.5, 0.25, output="HWC"), PHOTOS),
    (Image(0.5, 0.25, scale=1, input="THWC", output="CTHW"), CLIPS),
    *((Image(augment=augment.RandomErasing(1.0, value=value)), PHOTOS) for value in ("random", 1)),
    (Patches(2, min_pixels=16, max_pixels=256, merge=2, grid="grid"), UNEVEN),
    (Patches(2, augment=VIEWS[1], min_pixels=16, max_pixels=256, pad_to=64), PHOTOS),
    (Pad(mask=True, side="left", max_length=3), TOKENS),
    (Pad(axes=(0, 1), multiple_of=4), [np.ones((2, 3)), np.ones((4, 1)), np.ones((1, 1))]),
    (Jagged(torch.float32, max_length=4, side="left"), TOKENS),
    (Pack(seq_length=None, first_token=1), TOKENS),
]


def use_all():
    """Calls every native function through the package, with samples, tensors, rows, and rows of parts."""
    for field, samples in FIELDS:
        inputs = [samples, [torch.from_numpy(sample) for sample in samples]]
        if samples is TOKENS or len({sample.shape for sample in samples}) == 1:
            array = RaggedArray.from_sequences(samples) if samples is TOKENS else np.stack(samples)
            for source in (array, ConcatArray([array] * 2)):
                inputs.append(ArrayDataset({"entry": source})[[2, 0]])
        for batch in inputs:
            if isinstance(batch, list):
                batch = IndexedDataset([{"entry": sample} for sample in batch]).__getitems__(
                    [2, 0, 1]
                )
            Collate({"entry": field}, seed=0)(batch)
    Collate(Image(0.5))([PIL.Image.fromarray(photo) for photo in PHOTOS])  # lent
    Collate(Image(0.5))([PIL.Image.fromarray(photo[..., 0]) for photo in PHOTOS])  # converted later
    objects = {
        "labels": [1, 2],
        "boxes": [[1, 1, 5, 6], [0, 0, 3, 3]],
        "points": [[[1, 1]], [[2, 2]]],
    }
    objects |= {"masks": np.ones((2, 9, 7), np.uint8), "mask": np.ones((9, 7), np.uint8)}
    samples = IndexedDataset([{"image": photo} | objects for photo in PHOTOS])
    for view in VIEWS:
        fields = {"image": Image(augment=view, **PADDING), "masks": InstanceMasks()}
        fields |= {"boxes": Boxes(format="xywh", normalized=True), "points": Points()}
        Collate(fields | {"mask": Mask()}, seed=0)(samples.__getitems__([0, 1, 2]))
    for strategy in ("best_fit", "first_fit"):
        list(PackSampler([3, 0, 7, 8], seq_length=8, strategy=strategy))
    for replacement in (True, False):
        list(WeightedSampler([0.5, 0, 2], batch_size=1, num_samples=1, replacement=replacement))
    list(ShuffleSampler(40, 17))
    documents = RaggedArray.from_sequences([[1] * n for n in (3, 0, 7, 8)])
    pack = Pack(seq_length=8, document_ids="documents", attention_mask="mask", cu_seqlens="ends")
    for batch in PackSampler(documents, batch_size=2, seq_length=8, max_documents=3):
        Collate({"tokens": pack})(ArrayDataset({"tokens": documents})[batch])
    columns = {"x": np.arange(12).reshape(6, 2), "y": np.ones(6, np.float32)}
    Collate()(ArrayDataset(columns)[[2, 0]])
    Collate()([3, 0, 7])
    pinfeed.functional.gather(np.arange(40).reshape(10, 4)[::-1], [9, 0, 3], dtype="float32")
    pinfeed.functional.permute(np.zeros((3, 4, 5)), "HWC", "CHW")
    pinfeed.functional.patch_grid([9, 16], [7, 16], 2, min_pixels=16, max_pixels=256)
    SharedIntegers([0, 0, 0]).compare_exchange(2, 0, 1)
    with pinfeed.testing.use_isa(_core.active_isa()):
        pass


def copied(value):
    """Copies arguments, except for views, which can't be copied and don't change."""
    try:
        return copy.deepcopy(value)
    except TypeError:
        return value


@pytest.fixture(scope="module")
def calls():
    """Returns the arguments of recorded calls, by native function or op."""
    result = {name: [] for name in NATIVE}

    def recorded(name, native):
        def call(*arguments, **options):
            keywords = dict(zip(PARAMETERS[name], arguments, strict=False)) | options
            result[name].append({key: copied(value) for key, value in keywords.items()})
            return native(*arguments, **options)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in NATIVE:
            patch.setattr(_core, name, recorded(name, getattr(_core, name)))
        use_all()
    for _, op, arguments, options in op_cases.calls():
        names = [argument.name for argument in op.default._schema.arguments]
        keywords = dict(zip(names, arguments, strict=False)) | options
        if not any(getattr(value, "requires_grad", False) for value in keywords.values()):
            name = f"{op._qualified_op_name.removeprefix('pinfeed::')} op"
            result.setdefault(name, []).append(keywords)
    return result


@pytest.fixture(scope="module")
def numbers(tmp_path_factory):
    """Writes a file of rows."""
    path = tmp_path_factory.mktemp("rows") / "rows.npy"
    np.save(path, np.arange(400, dtype=np.int32).reshape(100, 4))
    return path


def rows_of_file(path):
    def call(array, offset):
        file = _core.FileArray(array, os.fspath(path), os.open(path, os.O_RDONLY), offset)
        return _core.gather(file, np.array([99, 0]), None, None, torch.Tensor, "name", 1)

    return call, lambda draw, _: {"array": np.load(path, mmap_mode="r"), "offset": 128}


def rows_of_parts(path):
    def call(rows, columns, **arguments):
        # In memory, because pybind11's messages print a ConcatArray's arrays.
        file = _core.FileArray.of_parts(np.zeros((rows, columns), np.int32), **arguments)
        indices = np.array([99, 0, 160])
        return _core.gather(file, indices, None, None, torch.Tensor, "name", 1)

    def arguments(draw, _):
        status = path.stat()
        stamp = [status.st_ino, status.st_size, status.st_mtime_ns]
        return {
            "rows": 200,
            "columns": 4,
            "paths": [os.fspath(path)] * 2,
            "stamps": [stamp, stamp],
            "offsets": [128, 128],
            "ends": [100, 200],
        }

    return call, arguments


def slots():
    page = _core.page_bytes
    file = _core.create_shared_file("damaged")
    first = _core.SharedSlot(file, 0, 2 * page, True)

    def call(offset, capacity, is_new, start, size):
        slot = _core.SharedSlot(file, offset, capacity, is_new)
        claimed = slot.claim(size)
        if claimed is not None:
            claimed.fill_(1)
        slot.send()
        received = slot.receive(start, size)
        assert received is None or int(received.sum()) >= 0
        return first

    def arguments(draw, _):
        sizes = {"offset": 0, "capacity": 2 * page, "is_new": False}
        return sizes | {"start": 1, "size": draw.choice([5, page])}

    return call, arguments


def try_damaged(name, call, arguments, intact=("target", "name", "threads")):
    """Calls a function with valid arguments, then with one to three damaged parts."""
    # torch's type checks raise RuntimeError.
    expected = (*REFUSALS, RuntimeError) if name.endswith(" op") else REFUSALS
    count = 4 * hypothesis.settings().max_examples
    worked = refused = 0
    for seed in range(count):
        draw, target = random.Random(f"{name} {seed}"), Guarded()
        keywords = arguments(draw, target)
        is_valid = seed % 12 == 0
        try:
            for _ in range(0 if is_valid else draw.randrange(1, 4)):
                part = draw.choice([key for key in keywords if key not in intact])
                keywords[part] = damaged(draw, keywords[part])
            call(**keywords)
            worked += 1
        except expected:
            refused += 1
        target.check()
    assert worked > count // 24, (worked, refused)
    assert refused > count // 24, (worked, refused)


@pytest.mark.parametrize("name", [*NATIVE, *(f"{op} op" for op in op_cases.OPS)])
def test_a_damaged_call(name, calls, num_threads_of_torch):
    module = torch.ops.pinfeed if name.endswith(" op") else _core

    def arguments(draw, target):
        keywords = {key: copied(value) for key, value in draw.choice(calls[name]).items()}
        if callable(keywords.get("target")):
            keywords["target"] = target
        if "batch" in keywords:  # written in place
            keywords["batch"] = target(keywords["batch"].shape, "float32")
        return keywords

    try_damaged(name, getattr(module, name.removesuffix(" op")), arguments)


@pytest.fixture
def num_threads_of_torch():
    """Uses one thread, so that a crash points at the call."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("make", [rows_of_file, rows_of_parts])
def test_damaged_rows_of_files(make, numbers):
    try_damaged(make.__name__, *make(numbers), intact=("paths",))


def test_damaged_slots():
    try_damaged("slots", *slots(), intact=())


def test_damaged_parts():
    def call(values, offsets, indices):
        parts = _core.PartArrays(values, offsets)
        return _core.join(parts, None, indices, torch.Tensor, "name", 1)

    def arguments(draw, _):
        values, offsets = np.arange(9), np.array([0, 2, 2, 9])
        call = {"values": (values, values.copy()), "offsets": (offsets, offsets.copy())}
        return call | {"indices": np.array([5, 0, 1])}

    try_damaged("parts", call, arguments, intact=())


def test_parts_whose_arrays_change_later():
    rows = [np.arange(12).reshape(3, 4) for _ in range(2)]
    parts = _core.PartArrays(tuple(rows))
    expected = _core.gather(parts, np.array([5, 0]), None, None, np.ndarray, "name", 1)
    rows[0].shape = (12,)
    rows[1].shape = (1, 2, 6)
    again = _core.gather(parts, np.array([5, 0]), None, None, np.ndarray, "name", 1)
    assert np.array_equal(again, expected)
    offsets = np.array([0, 2, 4])
    ragged = _core.PartArrays((np.arange(4),), (offsets,))
    for changed in ([0, 5, 4], [0, -1, 4], [0, 3, 2], [0, 2**62, 4]):
        offsets[:] = changed
        with pytest.raises(ValueError, match="offsets must not decrease"):
            _core.join(ragged, None, np.array([0, 1]), np.ndarray, "name", 1)


def test_strides_of_lent_pixels():
    """Regression: (channels - 1) * step overflowed."""
    lent = PIL.Image.fromarray(PHOTOS[0][..., 0]).copy().im.__arrow_c_array__()
    for channels, step in ((2**62 + 1, 2), (5, 0), (1, 2**62)):
        with pytest.raises(ValueError, match="lend_pixels: expected sizes that match"):
            _core.lend_pixels(lent, 9, 7, channels, step, np.dtype(np.uint8))


def test_options_are_checked_when_unpickled():
    step = _core.GeometryStep(kind="resize_to_one_of", sizes=(4, 5))
    state = [*state_of(copy.deepcopy(step))]
    state[state.index([4, 5])] = []
    with pytest.raises(ValueError, match="GeometryStep"):
        with_state(_core.GeometryStep, tuple(state))


@pytest.mark.parametrize("size", [2**62 + 1, 2**64 - 1])
def test_orders_of_more_samples_than_exist(size):
    with pytest.raises(ValueError, match=r"permuted: expected a size of at most 2\*\*62, got"):
        _core.permuted(size, (1,) * 6, 0, 3)
