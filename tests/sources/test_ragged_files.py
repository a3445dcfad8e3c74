"""RaggedArray in files: complete or absent; damage raises and never crashes."""

import multiprocessing
import os
import re
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from arrays import NUMPY_DTYPES, random_array
from pinfeed import write_array
from pinfeed.sources.ragged import RaggedArray
from programs import run_program
from samples import assert_same

ENDS = np.array([0, 3, 3, 4, 9])


def example():
    return RaggedArray(np.arange(18, dtype=np.int16).reshape(9, 2), ENDS)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("kind", [str, Path, lambda path: f"{path}/", os.fsencode])
def test_a_saved_array_opens_again(kind, tmp_path):
    path = kind(tmp_path / "ragged")
    example().save(path)
    ragged = RaggedArray.open(path)
    assert type(ragged) is RaggedArray
    assert_same(list(ragged), list(example()))
    assert not ragged[0].flags.writeable
    assert names(tmp_path) == ["ragged"]
    assert names(tmp_path / "ragged") == ["offsets.npy", "values.npy"]
    assert_same(np.load(tmp_path / "ragged" / "values.npy"), example().values)
    assert_same(np.load(tmp_path / "ragged" / "offsets.npy"), ENDS)
    np.save(tmp_path / "ragged" / "offsets.npy", ENDS.astype(np.int32))
    assert_same(list(RaggedArray.open(tmp_path / "ragged")), list(example()))


@pytest.mark.parametrize("dtype", NUMPY_DTYPES)
@pytest.mark.parametrize("inner", [(), (2,), (2, 3), (0,)])
def test_every_dtype_and_shape(dtype, inner, tmp_path):
    ragged = RaggedArray(random_array((9, *inner), dtype), ENDS)
    ragged.save(tmp_path / "ragged")
    assert_same(list(RaggedArray.open(tmp_path / "ragged")), list(ragged))


@pytest.mark.parametrize(
    "ragged",
    [
        RaggedArray(np.arange(20)[::-2], np.array([2, 4, 9], np.int32)),
        RaggedArray(np.arange(40).reshape(10, 4)[:, ::2], ENDS),
        example()[1:3],
        example()[4:],
        RaggedArray(np.empty((0, 3)), np.zeros(4, np.int64)),
        RaggedArray(np.asfortranarray(np.eye(9)), ENDS),
        RaggedArray(np.arange(5_000_000), np.array([1_000_000, 1_000_001, 4_500_000])),
        RaggedArray(np.zeros(1, np.uint8), np.repeat([0, 1], 3_000_000)),
    ],
)
def test_only_used_values_are_saved_with_offsets_from_0(ragged, tmp_path):
    ragged.save(tmp_path / "ragged")
    again = RaggedArray.open(tmp_path / "ragged")
    assert len(again) == len(ragged)
    assert again.offsets.dtype == np.int64
    assert again.offsets[0] == 0
    assert again.offsets[-1] == len(again.values)
    np.testing.assert_array_equal(again.offsets, ragged.offsets - ragged.offsets[0])
    assert_same(again.values, ragged.values[ragged.offsets[0] : ragged.offsets[-1]])
    again.save(tmp_path / "again")
    for name in ("values.npy", "offsets.npy"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "ragged" / name).read_bytes()


def test_tensors(tmp_path):
    values = torch.arange(9.0, requires_grad=True)
    RaggedArray(values, ENDS).save(tmp_path / "ragged")
    assert_same(RaggedArray.open(tmp_path / "ragged").values, values.detach().numpy())
    bits = re.escape(
        "NumPy has no bfloat16; convert with .float(), or take the bits with .view(torch.uint16)"
    )
    with pytest.raises(TypeError, match=bits):
        RaggedArray(values.bfloat16(), ENDS).save(tmp_path / "bfloat16")
    assert names(tmp_path) == ["ragged"]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_saving_copies_no_data(tmp_path):
    run_program("saving_without_a_copy", str(tmp_path / "ragged"))


def test_overwriting_an_open_array(tmp_path):
    path = tmp_path / "ragged"
    example().save(path)
    ragged = RaggedArray.open(path)
    ragged[1:3].save(path, overwrite=True)
    assert_same(list(RaggedArray.open(path)), list(example()[1:3]))
    assert_same(list(ragged), list(example()))


def save_forever(path):
    os.fsync = lambda _: time.sleep(60)  # a slow disk
    example().save(path)


def test_a_killed_process_leaves_no_partial_directory(tmp_path):
    context = multiprocessing.get_context("fork")
    process = context.Process(target=save_forever, args=(tmp_path / "ragged",))
    process.start()
    deadline = time.monotonic() + 60
    try:
        while not any(path.stat().st_size > 0 for path in tmp_path.glob(".*/result/values.npy")):
            assert process.is_alive()
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        process.kill()
        process.join()
    assert not (tmp_path / "ragged").exists()


@pytest.mark.parametrize("name", ["values", "offsets"])
def test_files_damaged_byte_by_byte(name, tmp_path):
    print(run_program("damaged_ragged_files", str(tmp_path / "ragged"), name, timeout=120))


def replace(name, array):
    return lambda folder: np.save(folder / f"{name}.npy", array)


DAMAGES = (
    (replace("offsets", ENDS.astype(np.uint64)), "offsets.npy: offsets: .*int64 or int32, got uint"),
    (replace("offsets", ENDS[:, None]), r"offsets.npy: offsets: expected shape .*got \(5, 1\)"),
    (replace("offsets", ENDS[:0]), r"offsets.npy: offsets: expected shape .*got \(0,\)"),
    (replace("offsets", ENDS[0]), "offsets.npy: expected an axis"),
    (replace("offsets", [0, 3, 2, 1]), r"offsets.npy: offsets\[2\] must be from 3 .*\[1\].*, got 2$"),
    (replace("offsets", [0, 3, 10]), r"offsets.npy: offsets\[2\] must be .* to 9 \(the num.*, got 10$"),
    (replace("values", np.zeros((8, 2))), r"offsets.npy: offsets\[4\] must be .* to 8 \(the num.*, got 9$"),
    (replace("values", np.asfortranarray(np.eye(9))), "values.npy: expected C order"),
    (replace("values", np.array(["a"] * 9)), "values.npy: expected a numeric or bool dtype"),
    (replace("values", np.array([{}] * 9)), "values.npy is not a .npy file"),
    (lambda folder: (folder / "values.npy").write_text("PK\3\4"), "values.npy is not a .npy"),
    (lambda folder: (folder / "values.npy").unlink(), "values.npy"),
    (lambda folder: (folder / "offsets.npy").unlink(), "offsets.npy"),
)  # fmt: skip


@pytest.mark.parametrize(("damage", "message"), DAMAGES)
def test_damaged_files(damage, message, tmp_path):
    folder = tmp_path / "ragged"
    example().save(folder)
    damage(folder)
    with pytest.raises((ValueError, FileNotFoundError), match=message) as caught:
        RaggedArray.open(folder)
    assert str(folder) in str(caught.value)


def test_a_file_is_not_a_directory(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros(3))
    with pytest.raises(OSError, match=r"x\.npy is not a directory that RaggedArray\.save wrote"):
        RaggedArray.open(tmp_path / "x.npy")


def test_what_is_no_path():
    with pytest.raises(TypeError, match=r"^RaggedArray.save: expected a path, got int"):
        example().save(3)
    with pytest.raises(TypeError, match=r"^write_array: path: expected a path, got int"):
        write_array(3, [[1]])
