"""Functions that write files or a directory: complete or absent, even after failures."""

import errno
import fcntl
import multiprocessing
import os
import threading
import time

import numpy as np
import pytest

from cold_files import contents
from pinfeed import RaggedArray, to_numpy, write_array

ZEROS, ONES = np.zeros(3), np.ones(2)


def dicts(batches):
    return ({"a": batch} for batch in batches)


def save(path, batches, **options):
    RaggedArray.from_sequences(batches).save(path, **options)


# The path of each, and the call that writes batches there.
WRITERS = {
    "to_numpy, file": ("x.npy", lambda path, batches, **o: to_numpy(batches, path, **o)),
    "to_numpy, directory": ("x", lambda path, batches, **o: to_numpy(batches, path, **o)),
    "write_array, file": ("x.npy", lambda path, batches, **o: write_array(path, batches, **o)),
    "write_array, directory": ("x", lambda path, batches, **o: write_array(path, dicts(batches), **o)),
    "RaggedArray.save": ("x", save),
}  # fmt: skip
every_writer = pytest.mark.parametrize(("name", "write"), WRITERS.values(), ids=WRITERS)


@every_writer
def test_existing_files_stay_unless_overwrite_is_set(name, write, tmp_path):
    path, calls = tmp_path / name, []

    def batches():
        calls.append(True)
        yield ONES

    write(path, [ZEROS])
    before = contents(tmp_path)
    with pytest.raises(FileExistsError, match="exists; overwrite=True replaces it"):
        write(path, batches())
    assert contents(tmp_path) == before
    assert write is save or calls == []
    write(path, [ONES], overwrite=True)
    after = contents(tmp_path)
    assert after.keys() == before.keys()
    assert after != before
    assert os.listdir(tmp_path) == [name]


@every_writer
@pytest.mark.parametrize("make", ["notes.txt", "deep/x.npy", "tokens/more.npy", "link"])
def test_files_of_others_are_never_replaced(make, name, write, tmp_path):
    folder = tmp_path / name
    (folder / make).parent.mkdir(parents=True)
    if make == "link":
        (folder / make).symlink_to(tmp_path)
    else:
        (folder / make).write_text("mine")
    file = tmp_path / "file"
    file.write_text("mine")
    for path in (folder, *([file] if name == "x" else [])):
        with pytest.raises(FileExistsError, match=r"is not a (file|directory) that .* wrote"):
            write(path, [ONES], overwrite=True)
    assert sorted(os.listdir(tmp_path)) == ["file", name]
    assert {*contents(tmp_path).values()} == {b"mine"}


@every_writer
def test_a_path_that_another_process_creates_meanwhile(name, write, tmp_path):
    def batches():
        yield ONES
        (tmp_path / name).write_text("mine")

    with pytest.raises(FileExistsError, match="exists"):
        write(tmp_path / name, batches())
    assert contents(tmp_path) == {name: b"mine"}


@every_writer
@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_a_failure_keeps_the_earlier_files(error, name, write, tmp_path):
    def batches():
        yield from [np.ones(100)] * 5000  # more than waits in memory
        raise error

    with pytest.raises(error):
        write(tmp_path / name, batches())
    assert os.listdir(tmp_path) == []
    write(tmp_path / name, [ZEROS])
    before = contents(tmp_path)
    with pytest.raises(error):
        write(tmp_path / name, batches(), overwrite=True)
    assert contents(tmp_path) == before
    assert os.listdir(tmp_path) == [name]


@every_writer
@pytest.mark.parametrize("limit", [5000, 1 << 20])
def test_a_full_disk(limit, name, write, tmp_path):
    """Simulated by a limit on file sizes."""
    resource = pytest.importorskip("resource")
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    write(tmp_path / name, [ZEROS])
    before = contents(tmp_path)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, usual[1]))
    try:
        with pytest.raises(OSError, match="too large") as caught:
            write(tmp_path / name, [np.ones(10_000)] * 50, overwrite=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    assert caught.value.errno == errno.EFBIG
    assert contents(tmp_path) == before
    assert os.listdir(tmp_path) == [name]


@pytest.mark.parametrize("renamed", ["x", "result"])
@pytest.mark.parametrize("writer", [writer for writer in WRITERS if WRITERS[writer][0] == "x"])
def test_an_interrupt_after_either_rename_leaves_a_complete_directory(
    writer, renamed, tmp_path, monkeypatch
):
    _, write = WRITERS[writer]
    write(tmp_path / "x", [ZEROS])
    write(tmp_path / "other", [ONES])
    old, new = contents(tmp_path / "x"), contents(tmp_path / "other")
    rename = os.rename

    def interrupted(source, target):
        rename(source, target)
        if os.path.basename(source) == renamed:
            raise KeyboardInterrupt

    monkeypatch.setattr(os, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path / "x", [ONES], overwrite=True)
    assert sorted(os.listdir(tmp_path)) == ["other", "x"]
    assert contents(tmp_path / "x") == (new if renamed == "result" else old)


@every_writer
def test_a_link_stays_a_link(name, write, tmp_path):
    (tmp_path / f"link{name[1:]}").symlink_to(tmp_path / name)
    for batches in ([ZEROS], [ONES]):
        write(tmp_path / f"link{name[1:]}", batches, overwrite=True)
    assert (tmp_path / f"link{name[1:]}").is_symlink()
    assert (tmp_path / name).exists()


@every_writer
def test_a_missing_folder(name, write, tmp_path):
    path = tmp_path / "nowhere" / name
    with pytest.raises(FileNotFoundError, match=rf": .*nowhere/{name}'$") as caught:
        write(path, [ONES])
    assert caught.value.filename == str(path)


def write_slowly(name, path, waits):
    """Writes until it is killed; its forked child continues."""
    if os.fork() == 0:
        time.sleep(3)
        os._exit(0)

    def batches():
        yield ONES
        waits.set()
        time.sleep(60)

    WRITERS[name][1](path, batches())


# `RaggedArray.save` has its sequences before it begins to write.
LAZY = [writer for writer in WRITERS if WRITERS[writer][1] is not save]


@pytest.mark.parametrize("writer", LAZY)
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_only_one_process_writes_a_path(writer, method, tmp_path):
    name, write = WRITERS[writer]
    context, calls = multiprocessing.get_context(method), []

    def batches():
        calls.append(True)
        yield ZEROS

    waits = context.Event()
    other = context.Process(target=write_slowly, args=(writer, tmp_path / name, waits))
    other.start()
    assert waits.wait(60)
    for options in ({}, {"overwrite": True}):
        with pytest.raises(FileExistsError, match=r"another process or .*f'part-\{rank\}'.*/x"):
            write(tmp_path / name, batches(), **options)
    assert calls == []
    write(tmp_path / f"1{name}", [ZEROS])  # the suggested fix
    other.kill()  # the fork doesn't hold the lock
    other.join()
    replaced = tmp_path / f".{name}.0123abcd" / "old"  # from a process killed between two renames
    replaced.mkdir(parents=True)
    hidden = {path for path in os.listdir(tmp_path) if path.startswith(".")}
    assert len(hidden) == 3  # with the lock and the partial result
    write(tmp_path / name, batches())
    assert {*os.listdir(tmp_path)} == {replaced.parent.name, name, f"1{name}"}


def write_at_once(path, barrier, results):
    barrier.wait(60)
    try:
        write_array(path, [ZEROS] * 10)
        results.put("written")
    except FileExistsError:
        results.put("taken")


def test_one_of_several_simultaneous_processes_writes(tmp_path):
    context = multiprocessing.get_context("fork")
    for trial in range(10):
        barrier, results = context.Barrier(3), context.SimpleQueue()
        ranks = [
            context.Process(target=write_at_once, args=(tmp_path / str(trial), barrier, results))
            for _ in range(3)
        ]
        for rank in ranks:
            rank.start()
        assert sorted(results.get() for _ in ranks) == ["taken", "taken", "written"]
        for rank in ranks:
            rank.join()
    assert sorted(os.listdir(tmp_path)) == [str(trial) for trial in range(10)]


@pytest.mark.parametrize("writer", LAZY)
def test_only_one_thread_writes_a_path(writer, tmp_path):
    (name, write), refused = WRITERS[writer], []

    def other():
        with pytest.raises(FileExistsError, match="another process or thread is writing it"):
            write(tmp_path / name, [ZEROS])
        refused.append(True)

    def batches():
        yield ONES
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()

    write(tmp_path / name, batches())
    assert refused == [True]
    write(tmp_path / name, [ONES], overwrite=True)
    assert os.listdir(tmp_path) == [name]


@every_writer
def test_a_file_system_without_locks(name, write, tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "lockf", refuse)
    write(tmp_path / name, [ZEROS])
    assert os.listdir(tmp_path) == [name]
