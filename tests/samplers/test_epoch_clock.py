"""EpochClock: its table of transitions for every sequence of events, local and shared."""

import itertools
import pickle

import pytest

from pinfeed.samplers.epoch_clock import EpochClock

EVENTS = [
    *(("set", epoch) for epoch in (0, 1, 5)),
    *(("load", epoch, "start") for epoch in (1, 5)),
    *(("load", epoch, None) for epoch in (1, 5)),
    ("begin",),
    ("continue_pass",),
    ("end",),
]


class Table:
    """The table in EpochClock's docstring."""

    def __init__(self):
        self.state = ("counted", 0)
        self.running_epoch = None  # the epoch of the latest pass
        self.ignored = self.repeats = None

    def next(self):
        return self.state[1] if self.repeats is None else self.repeats

    def set(self, epoch):
        self.repeats = None
        if self.state[:2] != ("loaded", epoch):
            self.state = ("set", epoch)

    def load(self, epoch, start):
        kind, following = self.state[:2]
        if start is None and kind == "set" and following > epoch:
            self.ignored = following
            return
        self.ignored = self.repeats = None
        self.state = ("counted", epoch + 1) if start is None else ("loaded", epoch, start)

    def begin(self):
        if self.repeats is not None:
            epoch, start = self.repeats, None
            if self.state[0] == "loaded":
                start = self.state[2]
                self.state = ("counted", epoch + 1)
            self.repeats = None
            return epoch, start
        epoch, start = (*self.state[1:], None)[:2]
        self.repeats = epoch if self.ignored == epoch else None
        self.ignored = None
        self.state, self.running_epoch = ("counted", epoch + 1), epoch
        return epoch, start

    def continue_pass(self):
        if self.state == ("set", self.running_epoch):
            self.state = ("counted", self.running_epoch + 1)

    def end(self):
        self.repeats = None


@pytest.mark.parametrize("is_shared", [False, True])
def test_every_sequence_of_events_follows_the_table(is_shared):
    length = 3 if is_shared else 4  # shared memory is slower
    for events in itertools.product(EVENTS, repeat=length):
        clock, table = EpochClock(is_shared=is_shared), Table()
        assert clock.next == table.next() == 0
        for event, *arguments in events:
            if event == "continue_pass":
                if table.running_epoch is not None and table.state[0] == "set":
                    clock.continue_pass(table.running_epoch)
                table.continue_pass()
            else:
                actual = getattr(clock, event)(*arguments)
                expected = getattr(table, event)(*arguments)
                assert event != "begin" or actual == expected, events
            assert clock.next == table.next(), events
            assert clock.is_set == (table.state[0] == "set"), events


def test_a_copy_is_independent():
    for is_shared in (False, True):
        clock = EpochClock(is_shared=is_shared)
        clock.set(3)
        clock.begin()
        copied = pickle.loads(pickle.dumps(clock))
        clock.load(7, "start")
        assert (clock.next, copied.next) == (7, 4)
        assert copied.begin() == (4, None)
        assert clock.begin() == (7, "start")


def test_a_drawn_epoch():
    clock = EpochClock()
    assert clock.begin(lambda: 2**63 - 1) == (2**63 - 1, None)
    clock.set(4)
    assert clock.begin(lambda: 9) == (4, None)
    clock.load(6, "start")
    assert clock.begin(lambda: 9) == (6, "start")
    assert clock.begin(lambda: 9) == (9, None)
