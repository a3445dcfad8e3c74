"""Every native call with arguments that no code of ours would pass: it raises, and writes nowhere else.

`make sanitize` runs this under AddressSanitizer, which sees reads outside too.
"""

import copy
import os
import random
import types

import hypothesis
import numpy as np
import pytest
import torch

from pinfeed import _core
from pinfeed.batches import Packing
from pinfeed.samplers.order_sampler import ROUNDS

pytestmark = pytest.mark.kernels

REFUSALS = (TypeError, ValueError, IndexError, OverflowError, MemoryError, OSError)

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
    """Where outputs go: memory between two walls."""

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
    made = kind.__new__(kind)
    made.__setstate__(state)
    return made


def is_options(value):
    return type(value).__module__ == _core.__name__ and hasattr(type(value), "__setstate__")


def damaged_array(draw, array):
    array = array.copy()
    way = draw.randrange(9)
    if way <= 2 and array.size and array.dtype.kind in "iuf":
        # Through Python's numbers: what the dtype lacks, it wraps.
        number = draw.choice([-1, 0, 1, 2, 3, 17, 255, -(2**62), 2**62, 2**63 - 1])
        array.flat[draw.randrange(array.size)] = np.array(number).astype(array.dtype)
    elif way <= 2 and array.size and array.dtype.kind == "b":
        array.view(np.uint8).flat[draw.randrange(array.size)] = draw.choice([0, 1, 2, 255])
    elif way == 3:
        array = array[: draw.randrange(len(array) + 1)] if array.ndim else array[None]
    elif way == 4:
        array = np.concatenate([array, array]) if array.ndim else array
    elif way == 5:
        array = draw.choice([array[None], array[..., None], array.reshape(-1)])
    elif way == 6:
        with np.errstate(invalid="ignore"):
            array = array.astype(draw.choice(DTYPES))
    elif way == 7:
        array.flags.writeable = False
    else:
        array = np.broadcast_to(array[..., :1], array.shape) if array.ndim else array
        array = array[::-1] if array.ndim and draw.random() < 0.5 else array
    return array


def damaged(draw, value):
    """Like it, but for some part that is another one."""
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
        place = draw.randrange(len(value))
        return type(value)([*value[:place], damaged(draw, value[place]), *value[place + 1 :]])
    if isinstance(value, list | tuple):
        return draw.choice([value[:0], value[:-1], value + value])
    if isinstance(value, bool):
        return draw.choice([not value, None])
    if isinstance(value, float):
        return draw.choice(REALS)
    if isinstance(value, str):
        return draw.choice(TEXTS)
    return draw.choice(INTEGERS)


# Of each call: valid arguments, made anew each time.

STEPS = {
    "random_crop": {"height": 4, "width": 5, "above": 1, "pad_if_needed": True},
    "center_crop": {"height": 4, "width": 5},
    "zoom_out": {"range": (1.0, 2.0), "probability": 1.0},
    "iou_crop": {"range": (0.3, 1.0), "ratio": (0.5, 2.0), "overlaps": (0.1, 1.0), "trials": 4},
    "random_resized_crop": {"height": 4, "width": 5, "range": (0.1, 1.0), "ratio": (0.7, 1.4)},
    "resize": {"height": 4, "width": 5},
    "resize_edges": {"height": 4, "width": 9},
    "resize_between": {"height": 4, "width": 9},
    "resize_to_one_of": {"sizes": (4, 5), "width": 9},
    "scale_jitter": {"height": 4, "width": 5, "range": (0.5, 2.0)},
    "flip_rows": {"probability": 1.0},
    "flip_columns": {"probability": 0.5},
}


def image_format(**changed):
    given = {"mean": np.array(0.5), "std": np.array(0.25), "scale": None, "input": "HWC"}
    return _core.ImageFormat(**given | {"output": "CHW", "dtype": "float32"} | changed)


def augment(draw):
    kinds = draw.sample(list(STEPS), draw.randrange(4))
    kinds = [kind for kind in kinds if "resize" not in kind][:2] + draw.sample(list(STEPS), 1)
    border = [_core.BorderOptions(kind=draw.choice(["constant", "edge", "reflect"])) for _ in "12"]
    saturation = draw.choice([(1, 1), (0, 2)])
    colors = [_core.ColorStep(contrast=(0.5, 1.5), saturation=saturation, probability=0.5)]
    return _core.AugmentOptions(
        steps=[_core.GeometryStep(kind=kind, **STEPS[kind]) for kind in kinds],
        border=border[0],
        resized_border=border[1],
        interpolation=draw.choice(["bilinear", "bicubic", "nearest", "nearest-exact"]),
        in_floats=draw.random() < 0.5,
        colors=colors if draw.random() < 0.3 else [],
        may_be_small=draw.random() < 0.5,
    )


def images(draw, count=3, same=True):
    sizes = [(9, 7, 3) if same else (draw.randrange(1, 12), draw.randrange(1, 12), 3)] * count
    made = [np.full(size, 9, np.uint8) for size in sizes]
    return draw.choice([made, np.stack(made), [torch.from_numpy(image) for image in made]])


def objects(count=3):
    offsets = np.arange(count + 1) * 2
    corners = np.tile(np.array([1.0, 1.0, 5.0, 6.0]), (2 * count, 1))
    return corners, offsets, np.ones(2 * count, np.bool_)


def viewed(draw, target):
    """Arguments of view_images, all of them."""
    return {
        "images": images(draw),
        "indices": None,
        "format": image_format(),
        "options": augment(draw),
        "target": target,
        "name": "name",
        "threads": 1,
        "key": 7,
        "samples": np.arange(3),
        "leaf": "leaf",
        "objects": objects(),
        "views": None,
        "rows": [],
        "padding": _core.ImagePaddingOptions(value=0, multiple_of=(4, 4), sizes=True, mask=True),
    }


def views(draw):
    """What view_images finds for valid arguments."""
    for _ in range(50):
        try:
            return _core.view_images(**viewed(draw, torch.Tensor)).views
        except ValueError:  # of steps that don't fit together
            continue
    raise AssertionError("no steps fit together")


def sequences(draw):
    """A source of three sequences, its offsets and indices."""
    values, offsets = np.arange(9), np.array([0, 2, 2, 9])
    parts = _core.PartArrays((values, values), (offsets, offsets))
    return draw.choice(
        [
            {"source": values, "offsets": offsets, "indices": np.array([2, 0, 1])},
            {"source": [values[:2], values[2:2], values[2:]], "offsets": None, "indices": None},
            {"source": [[1, 2], [], [3, 4, 5, 6, 7, 8, 9]], "offsets": None, "indices": None},
            {"source": parts, "offsets": None, "indices": np.array([5, 0, 1])},
        ]
    )


def packed(draw, target):
    lengths = np.array([7, 2, 5])
    packing = Packing(
        documents=np.array([2, 0, 3]),
        totals=np.array([9, 2, 5]),
        starts=np.array([1, 0, 0]),
        lengths=lengths,
        places=np.array([0, 8, 10]),
        rows=2,
        seq_length=8,
        multiple_of=1,
        max_documents=draw.choice([None, 2, 3]),
    )
    packing.places[2] = 10 if draw.random() < 0.9 else 8
    options = _core.PackOptions(
        fill=0,
        first=draw.choice([None, 1]),
        dtype=draw.choice([None, "int64"]),
        flat=draw.random() < 0.5,
        position_start=0,
        position_ids=True,
        document_ids=True,
        seq_idx=True,
        attention_mask=True,
        cu_seqlens=True,
    )
    return {
        "source": [np.arange(9), np.arange(2), np.arange(5)],
        "offsets": None,
        "indices": None,
        "packing": packing,
        "options": options,
        "target": target,
        "name": "name",
        "threads": 1,
    }


def padded(draw, target):
    axes = draw.choice([None, (0,), (0, 1)])
    source = sequences(draw)
    if axes == (0, 1):
        source = {"source": [np.ones((2, 3)), np.ones((4, 1))], "offsets": None, "indices": None}
    options = _core.PadOptions(
        value=0,
        axes=axes,
        one_axis=axes != (0, 1),
        side=draw.choice(["left", "right"]),
        max_length=draw.choice([None, 3]),
        multiple_of=None if axes is None else (4,) * len(axes),
        dtype=None,
        scale=None,
    )
    call = {"options": options, "target": target, "name": "name", "threads": 3}
    return source | call | {"argument": "", "lengths": True, "mask": draw.random() < 0.5}


def joined(draw, target):
    call = {"target": target, "name": "name", "threads": 1, "side": "left", "max_length": 4}
    call |= {"dtype": None, "scale": None, "lengths": np.array([2, 0, 5]), "argument": ""}
    return sequences(draw) | call


def patched(draw, target):
    sizes = _core.PatchSizes(patch=2, multiple=2, min_pixels=16.0, max_pixels=256.0)
    options = _core.PatchOptions(sizes=sizes, merge=2, temporal=2, pad_to=draw.choice([0, 64]))
    return {
        "images": images(draw, same=draw.random() < 0.7),
        "indices": None,
        "frames": draw.choice([None, np.array([2, 1])]),
        "format": image_format(input="HWC"),
        "options": options,
        "augment": augment(draw),
        "target": target,
        "name": "name",
        "threads": 3,
        "key": 0,
        "samples": np.zeros(3, np.int64),
    }


def normalized(draw, target):
    clips = draw.random() < 0.3
    layout = {"input": "THWC", "output": draw.choice(["CTHW", "TCHW", "THWC"])} if clips else {}
    given = np.zeros((3, 2, 9, 7, 3), np.uint8) if clips else images(draw)
    padding = _core.ImagePaddingOptions(value=0, multiple_of=(4, 4), sizes=True, mask=True)
    return {
        "images": given,
        "indices": None if isinstance(given, list) else np.array([2, 0, 1]),
        "format": image_format(**layout),
        "target": target,
        "name": "name",
        "threads": 3,
        "argument": "",
        "padding": draw.choice([None, padding]),
    }


def erased(draw, target):
    values = draw.choice([[0.5], [0.1, 0.2, 0.3], torch.zeros(2**16)])
    options = _core.ErasingOptions(
        probability=1.0, area=(0.1, 0.5), ratio=(0.5, 2.0), values=values
    )
    call = {"batch": target((3, 3, 9, 7), "float32"), "layout": "CHW", "options": options}
    return call | {"key": 3, "samples": np.arange(3), "name": "name", "threads": 1}


def gathered(draw, target):
    rows = np.arange(40, dtype=np.int32).reshape(10, 4)
    source = draw.choice([rows, rows[::-1], [*rows], _core.PartArrays((rows[:3], rows[3:]))])
    indices = None if isinstance(source, list) else np.array([9, 0, 3])
    call = {"source": source, "indices": indices, "dtype": draw.choice([None, "float32"])}
    return call | {"scale": None, "target": target, "name": "name", "threads": 1, "argument": ""}


@pytest.fixture(scope="module")
def numbers(tmp_path_factory):
    """A file of rows."""
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
        # With memory, unlike those of ConcatArray, because pybind11's messages show the array.
        file = _core.FileArray.of_parts(np.zeros((rows, columns), np.int32), **arguments)
        indices = np.array([99, 0, 160])
        return _core.gather(file, indices, None, None, torch.Tensor, "name", 1)

    def arguments(draw, _):
        status = path.stat()
        marks = [status.st_ino, status.st_size, status.st_mtime_ns]
        return {
            "rows": 200,
            "columns": 4,
            "paths": [os.fspath(path)] * 2,
            "marks": [marks, marks],
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


def op(name):
    """A torch op, by name."""
    return getattr(torch.ops.pinfeed, name)


JAGGED = {"values": torch.arange(9), "offsets": torch.tensor([0, 2, 2, 9])}
VIEWS = {"key": 0, "start": 0, "stop": 9}
# The call, None for the one of this name; and its arguments, given random draws and a target.
CALLS = {
    "as_indices": (None, lambda d, t: {"indices": d.choice([[0, 2], np.array([1, -1])]), "length": 3, "name": ""}),
    "alias_table": (None, lambda d, t: {"weights": np.array([0.5, 0.0, 2.0])}),
    "best_fit": (None, lambda d, t: {"lengths": np.array([3, 0, 7, 8], np.int32), "row_length": 8, "most_in_row": 3, "key": d.choice([None, 3])}),
    "check_value": (None, lambda d, t: {"value": 0.5, "dtype": "float16", "function": "", "keyword": ""}),
    "compare_exchange": (None, lambda d, t: {"cells": np.zeros(3, np.int64), "place": 2, "expected": 0, "desired": 1}),
    "draw_from_table": (None, lambda d, t: {"table": _core.alias_table(np.array([0.5, 0.0, 2.0]))} | VIEWS),
    "draw_keys": (None, lambda d, t: {"weights": np.array([0.5, 0.0, 2.0]), "key": 3, "first": 0}),
    "erase_images": (None, erased),
    "first_fit": (None, lambda d, t: {"lengths": np.array([3, 0, 7, 8], np.int32), "row_length": 8, "most_in_row": 3, "order": d.choice([None, np.array([3, 1, 0, 2])])}),
    "force_isa": (None, lambda d, t: {"name": _core.active_isa()}),
    "gather": (None, gathered),
    "join": (None, joined),
    "move_boxes": (None, lambda d, t: {"views": views(d), "objects": objects(), "options": _core.BoxOptions(format="xywh", of_image=True), "place": (9.0, 7.0), "target": t, "name": ""}),
    "move_points": (None, lambda d, t: {"views": views(d), "points": np.ones((6, 4, d.choice([2, 3]))), "offsets": np.arange(4) * 2, "remain": np.ones(6, np.bool_), "target": t, "name": ""}),
    "normalize_images": (None, normalized),
    "pack": (None, packed),
    "pack into one row": (lambda **given: _core.pack(packing=None, **given), lambda d, t: {key: value for key, value in packed(d, t).items() if key != "packing"}),
    "pad": (None, padded),
    "patch_grids": (None, lambda d, t: {"images": np.array([[9, 7], [16, 16]]), "sizes": _core.PatchSizes(patch=2, min_pixels=16.0, max_pixels=256.0), "name": "", "is_single": False}),
    "patch_images": (None, patched),
    "permute": (None, lambda d, t: {"array": np.zeros((3, 4, 5)), "axes": [2, 0, 1], "target": None, "name": "", "threads": 1}),
    "permuted": (None, lambda d, t: {"size": 40, "keys": [1] * ROUNDS, "start": 0, "stop": 17}),
    "to_corners": (None, lambda d, t: {"boxes": np.ones((3, 4)), "format": "xywh"}),
    "view_images": (None, viewed),
    "view_images of others": (_core.view_images, lambda d, t: viewed(d, t) | {"views": views(d), "rows": [2, 0, 0], "objects": None}),
    "normalize_images op": (op("normalize_images"), lambda d, t: {"images": torch.zeros(2, 5, 4, 3, dtype=torch.uint8), "mean": [0.5], "std": [0.25], "scale": 0.5, "input": "NHWC", "output": "NCHW"}),
    "permute op": (op("permute"), lambda d, t: {"images": torch.zeros(2, 5, 4, 3), "input": "NHWC", "output": "NCHW"}),
    "pad_jagged op": (op("pad_jagged"), lambda d, t: JAGGED | {"length": 4, "max_length": 3, "pad_value": 0.0, "side": "left"}),
    "unpad_to_jagged op": (op("unpad_to_jagged"), lambda d, t: {"padded": torch.zeros(3, 4), "offsets": torch.tensor([0, 2, 2, 9]), "total": 9, "max_length": 3, "side": "left"}),
}  # fmt: skip
#: They take nothing that says where memory is; or the tests below call them.
OTHERS = {"active_isa", "available_cpus", "available_isas", "compiled_isas", "create_shared_file"}
OTHERS |= {"memmap_under", "require_whole_file"}


def try_damaged(name, call, arguments, kept=("target", "name", "threads")):
    """Valid arguments, then ones with one to three damaged parts."""
    # torch's own checks of types raise RuntimeError.
    expected = (*REFUSALS, RuntimeError) if name.endswith(" op") else REFUSALS
    count = 4 * hypothesis.settings().max_examples
    worked = refused = 0
    for seed in range(count):
        draw, target = random.Random(f"{name} {seed}"), Guarded()
        given = arguments(draw, target)
        is_valid = seed % 12 == 0
        try:
            for _ in range(0 if is_valid else draw.randrange(1, 4)):
                part = draw.choice([key for key in given if key not in kept])
                given[part] = damaged(draw, given[part])
            call(**given)
            worked += 1
        except expected:
            refused += 1
        target.check()
    assert worked > count // 24, (worked, refused)
    assert refused > count // 24, (worked, refused)


def test_all_calls_are_here():
    kinds = types.BuiltinFunctionType
    assert {name for name, value in vars(_core).items() if isinstance(value, kinds)} == {
        name for name in CALLS if " " not in name
    } | OTHERS


@pytest.mark.parametrize("name", CALLS)
def test_a_call(name, num_threads_of_torch):
    call, arguments = CALLS[name]
    try_damaged(name, call or getattr(_core, name), arguments)


@pytest.fixture
def num_threads_of_torch():
    """One, so that a stop of the process points at the call."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("make", [rows_of_file, rows_of_parts])
def test_rows_of_files(make, numbers):
    try_damaged(make.__name__, *make(numbers), kept=("paths",))


def test_slots():
    try_damaged("slots", *slots(), kept=())


def test_parts():
    def call(values, offsets, indices):
        parts = _core.PartArrays(values, offsets)
        return _core.join(parts, None, indices, torch.Tensor, "name", 1)

    def arguments(draw, _):
        values, offsets = np.arange(9), np.array([0, 2, 2, 9])
        call = {"values": (values, values.copy()), "offsets": (offsets, offsets.copy())}
        return call | {"indices": np.array([5, 0, 1])}

    try_damaged("parts", call, arguments, kept=())


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
        with pytest.raises(ValueError, match="offsets must increase"):
            _core.join(ragged, None, np.array([0, 1]), np.ndarray, "name", 1)


def test_options_are_checked_when_they_are_unpickled():
    step = _core.GeometryStep(kind="resize_to_one_of", sizes=(4, 5))
    state = [*state_of(copy.deepcopy(step))]
    state[state.index([4, 5])] = []
    with pytest.raises(ValueError, match="GeometryStep"):
        with_state(_core.GeometryStep, tuple(state))
