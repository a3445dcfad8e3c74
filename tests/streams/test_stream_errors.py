"""StreamDataset: shards that fail, sources that can't be shared, arguments that are wrong."""

import glob
import itertools
import operator
import sys
from collections import deque
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, default_collate, get_worker_info

import pinfeed
from pinfeed import StreamDataset
from samples import FrozenError
from streams import as_worker, keep, read_shard

# Shards that fail.


@pytest.fixture
def shards(tmp_path):
    """Three samples each but for shard 1, which breaks after one, and shard 3, which is missing."""
    texts = ["0\n1\n2\n", "3\nbad\n5\n", "6\n7\n8\n", None, "9\n10\n11\n"]
    paths = [tmp_path / f"{number}.txt" for number in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        if text is not None:
            path.write_text(text)
    return paths


def test_an_error_names_its_shard(shards):
    samples = iter(StreamDataset(shards, open_shard=read_shard))
    assert list(itertools.islice(samples, 4)) == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="bad") as caught:
        next(samples)
    assert caught.value.__notes__ == [
        f"StreamDataset: in shard 1 of 5, '{shards[1]}', after 1 of its samples"
    ]
    with pytest.raises(FileNotFoundError) as caught:
        list(StreamDataset(shards[2:], open_shard=read_shard))
    assert "StreamDataset: in shard 1 of 3" in caught.value.__notes__[0]


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_in_a_worker_names_its_shard(workers, shards):
    loader = DataLoader(StreamDataset(shards, open_shard=read_shard), 2, num_workers=workers)
    with pytest.raises(ValueError, match=r"in shard 1 of 5, '.*1\.txt', after 1 of its samples"):
        list(loader)


def test_an_error_of_a_stream():
    def stream():
        yield 1
        raise LookupError("lost")

    with pytest.raises(LookupError, match="lost") as caught:
        list(StreamDataset(stream))
    assert caught.value.__notes__ == ["StreamDataset: in the stream, after 1 of its samples"]


def test_an_error_that_takes_no_note():
    def stream():
        yield 1
        raise error

    error = FrozenError(3)
    with pytest.raises(FrozenError) as caught:
        list(StreamDataset(stream))
    assert caught.value is error


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
    loader = DataLoader(
        dataset, 4, num_workers=workers, collate_fn=keep, multiprocessing_context=method
    )
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


def test_an_iterator_is_read_once():
    dataset = StreamDataset(iter(range(5)))
    assert list(dataset) == list(range(5))
    with pytest.raises(
        RuntimeError,
        match=r"source is an iterator \(range_iterator\), which can be read once, and has been; "
        "pass a function that returns a new one",
    ):
        iter(dataset)
    with pytest.raises(RuntimeError, match="which can be read once, and has been"):
        list(zip(*2 * [StreamDataset(iter(range(6)))], strict=True))
    dataset = StreamDataset(lambda: iter(range(5)))  # the way out
    assert list(dataset) == list(dataset) == list(range(5))


def test_an_iterator_is_not_for_several_workers():
    dataset = StreamDataset(number for number in range(5))
    with pytest.raises(RuntimeError, match=r"\(generator\), which can't be read by 2 workers"):
        list(DataLoader(dataset, num_workers=2, multiprocessing_context="fork"))
    with as_worker(0, 2), pytest.raises(RuntimeError, match="2 workers"):
        iter(dataset)
    assert list(dataset) == list(range(5))


def test_one_worker_reads_an_iterator_once():
    loader = DataLoader(
        StreamDataset(iter(range(5))), 5, num_workers=1, multiprocessing_context="fork"
    )
    assert [batch.tolist() for batch in loader] == [list(range(5))]
    with pytest.raises(RuntimeError, match="which can be read once, and has been"):
        list(loader)


# Workers that get a copy.


@pytest.mark.filterwarnings("ignore:Got pickle error:UserWarning")  # torch's own
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        (lambda: range(3), {}, "source must pickle, .* but function doesn't"),
        ((n for n in range(3)), {}, "source must pickle, .* but generator doesn't"),
        ([1, 2], {"open_shard": lambda n: range(n)}, "open_shard must pickle"),
        ([lambda: range(3)], {"open_shard": operator.call}, "source must pickle, .* but list doesn't"),
    ],
)  # fmt: skip
def test_what_does_not_pickle(method, source, options, message):
    dataset = StreamDataset(source, **options)
    loader = DataLoader(dataset, num_workers=1, multiprocessing_context=method)
    with pytest.raises(TypeError, match=f"StreamDataset: {message}.*; pass a function of a module"):
        iter(loader)


# Arguments.


SHARDS = {"source": ["abc", "def"], "open_shard": iter}
EVEN = SHARDS | {"even": "drop"}


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"source": 5}, TypeError, "source must be an iterable .*, got int"),
        ({"source": "a.tar"}, TypeError, r"got 'a.tar'; pass \['a.tar'\] and open_shard="),
        ({"source": Path("a")}, TypeError, "pass .* and open_shard="),
        ({"source": ["a.jsonl.gz", "b.jsonl.gz"]},
            TypeError, r"list of names, such as 'a.jsonl.gz'; write StreamDataset\(source, open_shard=read_shard\), with"),
        ({"source": (Path("a"),)}, TypeError, "a tuple of names, such as .*Path.*'a'.*open_shard="),
        ({"source": {"train": [1]}}, TypeError, "source must be an iterable .*, got dict"),
        ({"source": "a.tar", "open_shard": iter}, TypeError, "must be a list of shards, got str"),
        ({"source": iter, "open_shard": iter}, TypeError, "must be a list of shards, got builtin"),
        ({"source": [], "open_shard": iter}, ValueError, "expected at least one shard, got none"),
        ({"open_shard": 5}, TypeError, "open_shard must be a function of a shard, got int"),
        ({"shuffle_buffer": -1}, ValueError, "shuffle_buffer must be at least 0, got -1"),
        ({"shuffle_buffer": 2**63}, ValueError, "shuffle_buffer must be at most .*, got"),
        ({"shuffle_buffer": True}, TypeError, "shuffle_buffer must be an integer, got True"),
        ({"seed": -1}, ValueError, "seed must be at least 0, got -1"),
        ({"seed": "1"}, TypeError, "seed must be an integer, got '1'"),
        ({"even": True}, ValueError, r"even must be one of \('drop', 'repeat', None\), got True"),
        ({"on_error": "warn"}, ValueError, "on_error must be one of .*'skip'.*, got 'warn'"),
        ({"on_error": "skip"}, ValueError, "on_error='skip' leaves out the rest of a shard"),
        ({"lengths": [3], "even": "drop"}, ValueError, "lengths are for shards"),
        (SHARDS | {"lengths": [3, 3]}, ValueError, "lengths are for .*even='drop'"),
        (EVEN | {"lengths": [3, 3], "on_error": "skip"}, ValueError, "and for on_error='raise'"),
        (EVEN | {"lengths": [3]}, ValueError, r"one for each shard, got shape \(1,\) for 2 shards"),
        (EVEN | {"lengths": [3, -1]}, ValueError, "at least 0, got -1"),
        (EVEN | {"lengths": [3, 0.5]}, TypeError, "1-D integers.*, got dtype float64"),
        ({"rank": 0}, ValueError, "both rank and world_size, or neither"),
        ({"rank": 2, "world_size": 2}, ValueError, "rank must be below world_size=2, got 2"),
    ],
)  # fmt: skip
def test_wrong_arguments(arguments, error, message):
    with pytest.raises(error, match=f"StreamDataset: .*{message}"):
        StreamDataset(**{"source": range(3)} | arguments)


@pytest.mark.parametrize(
    ("epoch", "error", "message"),
    [
        (-1, ValueError, "at least 0, got -1"),
        ("1", TypeError, "an integer, got '1'"),
        (2**63, ValueError, "at most 1073741824, got"),
    ],
)
def test_wrong_epochs(epoch, error, message):
    dataset = StreamDataset(range(3))
    with pytest.raises(error, match=f"StreamDataset: epoch must be {message}"):
        dataset.set_epoch(epoch)
    assert dataset.epoch == 0


def test_a_shard_that_is_no_iterable():
    with pytest.raises(TypeError, match="not iterable") as caught:
        list(StreamDataset([1], open_shard=lambda shard: shard))
    assert caught.value.__notes__ == ["StreamDataset: in shard 0 of 1, 1, after 0 of its samples"]


def ends_at_once(shard):
    return next(iter([]))


def test_stop_iteration_does_not_end_the_stream():
    with pytest.raises(RuntimeError, match=r"ends_at_once.* raised StopIteration") as caught:
        list(StreamDataset([1, 2], open_shard=ends_at_once))
    assert caught.value.__notes__ == ["StreamDataset: in shard 0 of 2, 1, after 0 of its samples"]
    with pytest.raises(RuntimeError, match="raised StopIteration"):
        list(StreamDataset(lambda: next(iter([]))))
    skipping = StreamDataset([1, 2], open_shard=ends_at_once, on_error="skip")
    with pytest.warns(UserWarning, match="raised StopIteration"):
        assert list(skipping) == []
    assert skipping.skipped == 2


class Numbers(IterableDataset[int]):
    """As torch asks of it, it deals out its samples to workers; or it doesn't."""

    def __init__(self, deals):
        self.deals = deals

    def __iter__(self):
        info = get_worker_info() if self.deals else None
        return iter(range(100) if info is None else range(info.id, 100, info.num_workers))


class Plain:
    """The same, of no class of torch's."""

    def __init__(self, numbers):
        self.numbers = numbers

    def __iter__(self):
        yield from self.numbers


# What hides a source that deals out its samples.
HIDDEN = {
    "not hidden": StreamDataset,
    "iterator": lambda numbers: StreamDataset(numbers.__iter__),
    "function": lambda numbers: StreamDataset(lambda: numbers),
    "generator": lambda numbers: StreamDataset(lambda: (n for n in numbers)),
    "class": lambda numbers: StreamDataset(Plain(numbers)),
    "map in a list of iterators": lambda numbers: StreamDataset(lambda: itertools.chain.from_iterable([[], map(int, Plain(numbers))])),
    "shard": lambda numbers: StreamDataset([1], open_shard=lambda _: numbers),
    "generator in a shard": lambda numbers: StreamDataset([1], 9, open_shard=lambda _: (n for n in Plain(numbers))),
    "stream": lambda numbers: StreamDataset(lambda: iter(StreamDataset(lambda: iter(numbers)))),
}  # fmt: skip


@pytest.mark.parametrize("way", HIDDEN)
def test_a_source_that_deals_out_its_samples(way):
    make = HIDDEN[way]
    numbers = Numbers(deals=True)
    with as_worker(0, 1):
        assert sorted(make(numbers)) == list(range(100))
    message = (
        r"the source calls get_worker_info, in (Numbers.__iter__|.*StreamDataset.*|_worker.*): "
        r"it deals out its samples to the 2 workers by itself"
    )
    with as_worker(0, 2), pytest.raises(TypeError, match=message):
        list(make(numbers))


@pytest.mark.parametrize("way", [way for way in HIDDEN if way != "stream"])
def test_a_source_that_yields_all_samples(way):
    found = []
    for worker in range(2):
        with as_worker(worker, 2):
            found += HIDDEN[way](Numbers(deals=False))
    assert sorted(found) == list(range(100))


def batches_in_shared_memory():
    """They ask which worker this is, to know where they are to lie."""
    for i in range(0, 100, 2):
        samples = [torch.full((9000,), i), torch.full((9000,), i + 1)]
        yield pinfeed.pad([pinfeed.Collate()(samples), default_collate(samples)])[0][0, :, 0]


def test_a_source_that_makes_batches_deals_out_none():
    loader = DataLoader(StreamDataset(batches_in_shared_memory), None, num_workers=2)
    assert sorted(torch.cat([*loader]).tolist()) == list(range(100))


def test_a_profiler_goes_on():
    calls = []

    def profile(frame, event, argument):
        calls.append(frame.f_code.co_name)

    with as_worker(0, 2):
        sys.setprofile(profile)
        try:
            assert list(StreamDataset(Plain(Numbers(deals=False)))) == list(range(0, 100, 2))
            assert sys.getprofile() is profile
        finally:
            sys.setprofile(None)
        assert "Plain" not in calls
        assert calls.count("__iter__") > 2
        list(StreamDataset(Plain(Numbers(deals=False))))
        with pytest.raises(TypeError, match="calls get_worker_info"):
            list(StreamDataset(Plain(Numbers(deals=True))))
        assert sys.getprofile() is None


def test_a_source_that_may_deal_out_its_samples_to_ranks(monkeypatch):
    inner = StreamDataset(range(10))
    ways = [inner, lambda: inner, lambda: (n for n in inner)]
    for way in ways:
        assert list(StreamDataset(way)) == list(range(10))
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    for way in ways:
        with pytest.raises(
            TypeError, match=r"an IterableDataset \(StreamDataset\), and nothing .* to the 2 ranks"
        ):
            list(StreamDataset(way))
        assert list(StreamDataset(way, rank=0, world_size=1)) == [1, 3, 5, 7, 9]


# Names of files that are taken for samples.


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working directory, with two files."""
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
def test_names_are_no_samples(kind, folder):
    source = NAMES[kind](folder)
    with pytest.raises(
        TypeError, match=rf"{type(source).__name__} of names, such as .*\.txt.*open_shard="
    ):
        list(StreamDataset(source))
    if kind in ("array", "iglob", "Path.glob", "map"):  # what the message says
        names = [*NAMES[kind](folder)][-1:]
        assert list(StreamDataset(names, open_shard=read_shard)) == [1, 2]


def test_texts_are_samples(folder):
    texts = ["in a.txt there are numbers", "a", "/", "x" * 10_000, "\0"]
    for first in texts:
        assert list(StreamDataset(iter([first, "a.txt"]))) == [first, "a.txt"]
    with open("a.txt") as lines:
        assert list(StreamDataset(lines)) == ["1\n", "2\n"]
    assert list(StreamDataset(lambda: glob.iglob("a*"))) == ["a.txt"]
