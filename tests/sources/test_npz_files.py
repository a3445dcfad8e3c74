""".npz files: the arrays of np.savez in place, and errors for all other files."""

import contextlib
import gc
import io
import zipfile

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import pinfeed
from arrays import NUMPY_DTYPES, random_array
from cold_files import open_files
from pinfeed.sources.npz import npz_arrays
from programs import run_program

SHAPES = st.lists(st.integers(0, 5), max_size=4).map(tuple)
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="/\0\\"), min_size=1, max_size=8)


@given(
    st.dictionaries(
        NAMES.filter(lambda name: name != "file"),  # an argument of np.savez
        st.tuples(
            SHAPES, st.sampled_from([*NUMPY_DTYPES, ">i4", "U3", "M8[s]", "i2, f4"]), st.booleans()
        ),
        max_size=4,
    )
)
def test_arrays_equal_np_load(tmp_path, members):
    arrays = {}
    for seed, (name, (shape, dtype, is_fortran)) in enumerate(members.items()):
        array = np.zeros(shape, dtype)
        if array.size and array.dtype.kind in "iufc":
            array = random_array(shape, dtype, seed)
        arrays[name] = np.asfortranarray(array) if is_fortran else array
    np.savez(tmp_path / "x.npz", **arrays)
    opened = npz_arrays(str(tmp_path / "x.npz"), "x")
    with np.load(tmp_path / "x.npz") as expected:
        assert list(opened) == list(expected) == list(arrays)
        for name, array in opened.items():
            assert isinstance(array, np.memmap) or array.size == 0
            assert not array.flags.writeable
            assert array.dtype == expected[name].dtype
            assert array.shape == expected[name].shape
            assert array.strides == expected[name].strides or array.size < 2
            assert array.tobytes() == expected[name].tobytes()


def test_one_open_file_and_none_at_the_end(tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, **{str(i): np.arange(3) for i in range(100)})
    opened = npz_arrays(str(path), "x")
    assert open_files().count(str(path)) <= 1
    del opened
    gc.collect()
    assert open_files().count(str(path)) == 0


def test_large_members_and_a_prefix_of_many_bytes(tmp_path):
    # zip64 as np.savez writes it, after a prefix.
    path = tmp_path / "x.npz"
    path.write_bytes(b"#!/bin/sh\n" * 500)
    with zipfile.ZipFile(path, "a", allowZip64=True) as archive:
        for name in ("a.npy", "b.npy"):
            with archive.open(name, "w", force_zip64=True) as member:
                np.save(member, np.full(1000, ord(name[0]), "u2"))
    opened = npz_arrays(str(path), "x")
    assert {name: set(array.tolist()) for name, array in opened.items()} == {"a": {97}, "b": {98}}


def write_zip(path, **options):
    with zipfile.ZipFile(path, "w", **options) as archive:
        archive.writestr("x.npy", npy(np.arange(100)))


def npy(array, **options):
    written = io.BytesIO()
    np.save(written, array, **options)
    return written.getvalue()


def member(contents, name="x.npy"):
    def write(path):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(name, contents)

    return write


def replaced(old, new):
    """Returns a file whose first matching bytes are replaced."""

    def write(path):
        write_zip(path)
        contents = path.read_bytes()
        assert old in contents
        path.write_bytes(contents.replace(old, new, 1))

    return write


REFUSED = {
    "compressed": (lambda path: np.savez_compressed(path, x=np.zeros(3)),
        r"member 'x\.npy' is compressed or .* np\.savez instead of np\.savez_compressed, .* np\.load"),
    "another compression": (lambda path: write_zip(path, compression=zipfile.ZIP_LZMA), "is compressed or encrypted"),
    "encrypted": (replaced(b"PK\x01\x02\x14\x03\x14\x00\x00", b"PK\x01\x02\x14\x03\x14\x00\x01"), "is compressed or encrypted"),
    "objects": (lambda path: np.savez(path, x=np.array([{}, None])),
        r"member 'x\.npy' .*: expected numbers, got dtype object; nothing is unpickled"),
    "no array": (member(b"hello", "notes.txt"), r"member 'notes\.txt' is not an array; leave out members"),
    "no .npy file": (member(b"hello"), r"member 'x\.npy' is not a \.npy file of numbers: "),
    "an empty member": (member(b""), r"member 'x\.npy' is not a \.npy file of numbers: "),
    "a later version": (member(b"\x93NUMPY\x03\x00" + npy(np.arange(3))[8:]), r"format version \(3, 0\) is not for arrays of numbers"),
    "a cut array": (member(npy(np.arange(100))[:-1]), r"an array of int64 and shape \(100,\) ends at byte 928, but the member has 927 bytes"),
    "no local header": (replaced(b"PK\x03\x04", b"PK\x03\x05"), "expected its header at byte 0, but there is none"),
    "no archive": (lambda path: path.write_bytes(b"hello"), r"is not a complete \.npz file: "),
    "nothing": (lambda path: path.touch(), r"is not a complete \.npz file: "),
    "a .npy file": (lambda path: path.write_bytes(npy(np.arange(9))), r"is not a complete \.npz file: "),
}  # fmt: skip


@pytest.mark.parametrize("kind", REFUSED)
def test_bad_files(tmp_path, kind):
    make, message = REFUSED[kind]
    make(tmp_path / "x.npz")
    with pytest.raises(ValueError, match=rf"^ArrayDataset: {tmp_path}/x\.npz.*{message}"):
        pinfeed.ArrayDataset(tmp_path / "x.npz")


def test_unreadable_files(tmp_path):
    for path in (tmp_path / "none.npz", tmp_path):
        with pytest.raises(OSError, match=str(path)):
            npz_arrays(str(path), "x")


def a_file():
    written = io.BytesIO()
    np.savez(written, x=np.arange(5), y=np.ones((2, 3), "f4"), z=np.zeros((0, 2)))
    return written.getvalue()


GOOD = a_file()


@settings(max_examples=500)
@given(
    st.lists(st.tuples(st.integers(0, len(GOOD) - 1), st.integers(0, 255)), max_size=4),
    st.integers(0, len(GOOD)),
    st.integers(0, len(GOOD)),
)
@example([], len(GOOD), 0)
def test_damaged_bytes(tmp_path, changes, cut, left_out):
    damaged = bytearray(GOOD)
    for place, value in changes:
        damaged[place] = value
    path = tmp_path / "x.npz"
    path.write_bytes(damaged[:cut] if left_out % 3 else damaged[left_out:])
    with contextlib.suppress(ValueError, OSError):
        for array in npz_arrays(str(path), "x").values():
            array.tobytes()  # mapped bytes exist


def test_damaged_bytes_at_the_end_of_a_page(tmp_path):
    """A member that ends with the file, at the end of a page: one byte more would be SIGBUS."""
    assert set(run_program("damaged_npz", str(tmp_path / "x.npz")).split()) == {"ValueError"}
