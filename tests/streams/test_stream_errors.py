"""StreamDataset: failing shards, sources that can't be shared, bad arguments."""

import glob
import itertools
import operator
from collections import deque
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from messages import check
from pinfeed import ArrayDataset, StreamDataset
from samples import FrozenError
from streams import as_worker, keep, read_shard

# Failing shards.


@pytest.fixture
def shards(tmp_path):
    """Returns shards of three samples; shard 1 breaks after one, and shard 3 is missing."""
    texts = ["0\n1\n2\n", "3\nbad\n5\n", "6\n7\n8\n", None, "9\n10\n11\n"]
    paths = [tmp_path / f"{number}.txt" for number in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        if text is not None:
            path.write_text(text)
    return paths


def lost():
    yield 1
    raise LookupError("lost")


def frozen():
    yield 1
    raise FrozenError(3)


def ends_at_once(*_):
    return next(iter([]))


def numbered(**options):
    return StreamDataset([1, 2], **options)


# A stream of the shards, the samples before its error, the error's type and text, and its note.
FAILING = {
    "broken": (lambda paths: StreamDataset(paths, open_shard=read_shard), [0, 1, 2, 3],
        ValueError, "bad", "in shard 1 of 5, '{}/1.txt', after 1 of its samples"),
    "missing": (lambda paths: StreamDataset(paths[2:], open_shard=read_shard), [6, 7, 8],
        FileNotFoundError, "3.txt", "in shard 1 of 3, '{}/3.txt', after 0 of its samples"),
    "no shards": (lambda _: StreamDataset(lost), [1],
        LookupError, "lost", "in the stream, after 1 of its samples"),
    "takes no note": (lambda _: StreamDataset(frozen), [1], FrozenError, "3", None),
    "no iterable": (lambda _: numbered(open_shard=lambda shard: shard), [],
        TypeError, "not iterable", "in shard 0 of 2, 1, after 0 of its samples"),
    "StopIteration": (lambda _: numbered(open_shard=ends_at_once), [],
        RuntimeError, "ends_at_once.* raised StopIteration", "in shard 0 of 2, 1, after 0 of its samples"),
    "StopIteration of the source": (lambda _: StreamDataset(ends_at_once), [],
        RuntimeError, "raised StopIteration", None),
}  # fmt: skip


@pytest.mark.parametrize(("make", "before", "kind", "text", "note"), FAILING.values(), ids=FAILING)
def test_an_error_names_its_shard(make, before, kind, text, note, shards):
    samples = []
    with pytest.raises(kind, match=text) as caught:
        samples.extend(make(shards))
    assert samples == before
    if note is not None:
        where = note.format(shards[0].parent)
        assert caught.value.__notes__ == [f"StreamDataset: {where}"]


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_in_a_worker_names_its_shard(workers, shards):
    loader = DataLoader(StreamDataset(shards, open_shard=read_shard), 2, num_workers=workers)
    with pytest.raises(ValueError, match=r"in shard 1 of 5, '.*1\.txt', after 1 of its samples"):
        list(loader)


@pytest.mark.parametrize("buffer", [0, 1, 3, 100])
def test_skip(buffer, shards):
    dataset = StreamDataset(shards, buffer, open_shard=read_shard, on_error="skip")
    for epoch in range(2):
        with pytest.warns(UserWarning, match="skipped the rest of shard") as warned:
            samples = list(dataset)
        assert sorted(samples) == [0, 1, 2, 3, 6, 7, 8, 9, 10, 11]
        assert dataset.skipped == 2 * (epoch + 1)
        texts = sorted(str(warning.message) for warning in warned)
        assert texts[0].startswith(
            f"StreamDataset: skipped the rest of shard 1 of 5, '{shards[1]}', after 1 of its "
            "samples: ValueError: invalid literal"
        )
        assert "shard 3 of 5" in texts[1]
        assert "after 0 of its samples: FileNotFoundError" in texts[1]


@pytest.mark.filterwarnings("ignore:StreamDataset. skipped:UserWarning")
@pytest.mark.parametrize(("workers", "method"), [(2, "fork"), (6, "fork"), (2, "spawn")])
def test_skip_counts_each_shard_once(workers, method, shards):
    dataset = StreamDataset(shards, open_shard=read_shard, on_error="skip")
    options = {"num_workers": workers, "multiprocessing_context": method}
    loader = DataLoader(dataset, 4, collate_fn=keep, **options)
    assert sorted(itertools.chain(*loader)) == [0, 1, 2, 3, 6, 7, 8, 9, 10, 11]
    assert dataset.skipped == 2


@pytest.mark.filterwarnings("ignore:StreamDataset. skipped:UserWarning")
@pytest.mark.parametrize("buffer", [0, 3])
def test_resume_past_a_skipped_shard(buffer, shards):
    def make():
        return StreamDataset(shards, buffer, open_shard=read_shard, on_error="skip")

    whole = list(make())
    for stop in range(len(whole) + 1):
        first, second = make(), make()
        head = list(itertools.islice(iter(first), stop))
        second.load_state_dict(first.state_dict())
        assert head + list(second) == whole


# Iterators.


ITERATOR = "StreamDataset: source must not be an iterator {}, got a {}; pass a function that returns a new one"
READ = ITERATOR.format("in a second pass", "range_iterator")


def test_an_iterator_is_read_once():
    dataset = StreamDataset(iter(range(5)))
    assert list(dataset) == list(range(5))
    check(lambda: iter(dataset), RuntimeError, READ)
    twice = StreamDataset(iter(range(6)))
    check(lambda: list(zip(twice, twice, strict=True)), RuntimeError, READ)
    dataset = StreamDataset(lambda: iter(range(5)))  # the suggested fix
    assert list(dataset) == list(dataset) == list(range(5))


def test_an_iterator_is_not_for_several_workers():
    dataset = StreamDataset(number for number in range(5))
    with pytest.raises(RuntimeError, match="iterator with 2 workers, got a generator"):
        list(DataLoader(dataset, num_workers=2, multiprocessing_context="fork"))
    with as_worker(0, 2):
        message = ITERATOR.format("with 2 workers", "generator")
        check(lambda: iter(dataset), RuntimeError, message)
    assert list(dataset) == list(range(5))


def test_one_worker_reads_an_iterator_once():
    dataset = StreamDataset(iter(range(5)))
    loader = DataLoader(dataset, 5, num_workers=1, multiprocessing_context="fork")
    assert [batch.tolist() for batch in loader] == [list(range(5))]
    with pytest.raises(RuntimeError, match="not be an iterator in a second pass"):
        list(loader)


# Workers with a pickled copy.


@pytest.mark.filterwarnings("ignore:Got pickle error:UserWarning")  # torch's own
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        (lambda: range(3), {}, "source must be picklable .* but function is not"),
        ((n for n in range(3)), {}, "source must be picklable .* but generator is not"),
        ([1, 2], {"open_shard": lambda n: range(n)}, "open_shard must be picklable"),
        ([lambda: range(3)], {"open_shard": operator.call}, "source must be picklable .* but list is not"),
    ],
)  # fmt: skip
def test_sources_that_do_not_pickle(method, source, options, message):
    dataset = StreamDataset(source, **options)
    loader = DataLoader(dataset, num_workers=1, multiprocessing_context=method)
    with pytest.raises(TypeError, match=f"StreamDataset: {message}.*; pass a function of a module"):
        iter(loader)


# Arguments.


SHARDS = {"source": ["abc", "def"], "open_shard": iter}


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"source": 5}, TypeError, "source must be an iterable .*, got int"),
        ({"source": "a.tar"}, TypeError, r"got 'a.tar'; pass \['a.tar'\] and open_shard="),
        ({"source": Path("a")}, TypeError, "pass .* and open_shard="),
        ({"source": ["a.jsonl.gz", "b.jsonl.gz"]},
            TypeError, r"list of names, such as 'a.jsonl.gz'; pass open_shard=, a function"),
        ({"source": (Path("a"),)}, TypeError, "a tuple of names, such as .*Path.*'a'.*open_shard="),
        ({"source": {"train": [1]}}, TypeError, "source must be an iterable .*, got dict"),
        ({"source": "a.tar", "open_shard": iter}, TypeError, r"must be a list of shards, got str; pass sorted\(glob.glob\('a.tar'\)\)"),
        ({"source": iter, "open_shard": iter}, TypeError, "must be a list of shards, got builtin"),
        ({"source": [], "open_shard": iter}, ValueError, "expected at least one shard, got none"),
        ({"open_shard": 5}, TypeError, "open_shard must be a function that takes a shard, got int"),
        ({"shuffle_buffer": -1}, ValueError, "shuffle_buffer must be at least 0, got -1"),
        ({"shuffle_buffer": 2**63}, ValueError, "shuffle_buffer must be at most .*, got"),
        ({"shuffle_buffer": True}, TypeError, "shuffle_buffer must be an integer, got True"),
        ({"seed": -1}, ValueError, "seed must be at least 0, got -1"),
        ({"seed": "1"}, TypeError, "seed must be an integer, got '1'"),
        ({"uneven": True}, ValueError, r"uneven must be one of \('repeat', 'drop', 'keep', None\), got True"),
        ({"on_error": "warn"}, ValueError, "on_error must be one of .*'skip'.*, got 'warn'"),
        ({"on_error": "skip"}, ValueError, "on_error='skip' needs open_shard, got a"),
        ({"seed": 0}, ValueError, "seed must be None where nothing is shuffled, got 0 with shuffle_buffer=0 and 1 shard; shuffle_buffer=1000 "),
        (SHARDS | {"seed": 5}, ValueError, "shuffled, got 5 with shuffle_buffer=0 and 2 shards; shuffle_buffer=1 "),
        ({"source": [1], "open_shard": iter, "seed": 5}, ValueError, "got 5 with shuffle_buffer=0 and 1 shard; shuffle_buffer=1000 "),
        ({"source": lambda: iter([1]), "shuffle_buffer": 1, "seed": 5},
            ValueError, "got 5 with shuffle_buffer=1 and 1 shard; shuffle_buffer=1000 "),
        ({"rank": 0}, ValueError, "rank and world_size must both be given, or neither"),
        ({"rank": 2, "world_size": 2}, ValueError, "rank must be below world_size=2, got 2"),
    ],
)  # fmt: skip
def test_bad_arguments(arguments, error, message):
    with pytest.raises(error, match=f"StreamDataset: .*{message}"):
        StreamDataset(**{"source": range(3)} | arguments)


def test_a_seed_for_one_shard():
    words = "got 5 with shuffle_buffer=1 and 1 shard; shuffle_buffer=1000 shuffles within"
    with pytest.warns(UserWarning, match=words) as caught:
        stream = StreamDataset([range(9)], 1, 5, open_shard=iter)
    assert caught[0].filename == __file__
    assert list(stream) == list(range(9))
    for source, options in (([range(9)], {"open_shard": iter}), (lambda: range(9), {})):
        samples = list(StreamDataset(source, 1000, 5, **options))  # by the hint
        assert samples != sorted(samples)


@pytest.mark.parametrize(
    ("epoch", "error", "words"),
    [
        (-1, ValueError, "at least 0, got -1"),
        ("1", TypeError, "an integer, got '1'"),
        (2**63, ValueError, "at most 1073741824, got"),
    ],
)
def test_bad_epochs(epoch, error, words):
    dataset = StreamDataset(range(3))
    check(lambda: dataset.set_epoch(epoch), error, f"StreamDataset: epoch must be {words}")
    assert dataset.epoch == 0


def test_stop_iteration_skips_a_shard():
    skipping = numbered(open_shard=ends_at_once, on_error="skip")
    with pytest.warns(UserWarning, match="raised StopIteration"):
        assert list(skipping) == []
    assert skipping.skipped == 2


class Numbers(IterableDataset[int]):
    """An IterableDataset that does or doesn't divide its samples among workers, as torch requires."""

    def __init__(self, deals):
        self.deals = deals

    def __iter__(self):
        info = get_worker_info() if self.deals else None
        return iter(range(100) if info is None else range(info.id, 100, info.num_workers))


# How a stream receives an IterableDataset.
AS_SOURCE = {
    "source": StreamDataset,
    "function": lambda numbers: StreamDataset(lambda: numbers),
    "shard": lambda numbers: StreamDataset([1], open_shard=lambda _: numbers),
    "stream": lambda numbers: StreamDataset(StreamDataset(numbers)),
}


@pytest.mark.parametrize("way", AS_SOURCE)
@pytest.mark.parametrize("deals", [True, False])
def test_an_iterable_dataset_can_divide_its_samples_among_workers(way, deals):
    make = AS_SOURCE[way]
    with as_worker(0, 1):
        assert sorted(make(Numbers(deals))) == list(range(100))
    with as_worker(0, 2):
        message = "got an IterableDataset", "), which may shard over the 2 workers"
        check(lambda: list(make(Numbers(deals))), TypeError, *message)


def test_a_source_that_can_divide_its_samples_among_ranks(monkeypatch):
    inner = StreamDataset(range(10))
    for way in (inner, lambda: inner):
        assert list(StreamDataset(way)) == list(range(10))
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    inner = StreamDataset(range(10), uneven="keep")
    message = "an IterableDataset (StreamDataset), which may shard over the 2 ranks"
    for way in (inner, lambda: inner):
        check(lambda: list(StreamDataset(way, uneven="keep")), TypeError, message)  # noqa: B023
        assert list(StreamDataset(way, rank=0, world_size=1)) == [1, 3, 5, 7, 9]


# File names in place of samples.


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Returns the working directory, with two files."""
    monkeypatch.chdir(tmp_path)
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("1\n2\n")
    return tmp_path


NAMES = {
    "array": lambda folder: np.array(["gone.txt", "b.txt"]),
    "array of objects": lambda folder: np.array([Path("a.txt")], object),
    "keys": lambda folder: {"gone.txt": 1}.keys(),
    "set": lambda folder: {Path("gone.txt")},
    "deque": lambda folder: deque(["gone.txt"]),
    "iglob": lambda folder: glob.iglob("*.txt"),
    "Path.glob": lambda folder: folder.glob("*.txt"),
    "map": lambda folder: map(str, folder.iterdir()),
}


@pytest.mark.parametrize("kind", NAMES)
def test_file_names_are_not_samples(kind, folder):
    source = NAMES[kind](folder)
    words = f"{type(source).__name__} of names, such as ", ".txt'", "open_shard="
    check(lambda: list(StreamDataset(source)), TypeError, *words)
    if kind in ("array", "iglob", "Path.glob", "map"):  # the suggested fix
        names = [*NAMES[kind](folder)][-1:]
        assert list(StreamDataset(names, open_shard=read_shard)) == [1, 2]


def test_texts_are_samples(folder):
    texts = ["in a.txt there are numbers", "a", "/", "x" * 10_000, "\0"]
    for first in texts:
        assert list(StreamDataset(iter([first, "a.txt"]))) == [first, "a.txt"]
    with open("a.txt") as lines:
        assert list(StreamDataset(lines)) == ["1\n", "2\n"]
    assert list(StreamDataset(lambda: glob.iglob("a*"))) == ["a.txt"]


def test_a_function_without_a_result():
    with pytest.raises(TypeError, match="must return or yield samples, got None"):
        list(StreamDataset([1], open_shard=lambda _: None))


def test_tables_and_positions():
    frame = pd.DataFrame({"x": [1, 2]})
    words = "expected an iterable of samples, got DataFrame", "ArrayDataset.from_arrow(table)"
    check(lambda: StreamDataset(frame), TypeError, "StreamDataset: source", *words)
    assert list(StreamDataset(ArrayDataset.from_arrow(frame))) == [{"x": 1}, {"x": 2}]
    words = "StreamDataset: shuffle_buffer must be an integer, got a function; write open_shard=..."
    check(lambda: StreamDataset([[1], [2]], iter), TypeError, words)
    assert list(StreamDataset([[1], [2]], open_shard=iter)) == [1, 2]
