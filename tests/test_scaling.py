"""bench/scaling.py: queues against plain loops, the simulation against what bounds it."""

import numpy as np
import pytest
from bench import scaling
from bench.scaling import Job, Node, Plan, Storage, bound, knee, simulate
from hypothesis import given, settings
from hypothesis import strategies as st

JOB = Job("job", rate=1000, sample_bytes=1_000_000, batch=64)  # 1 GB/s for each GPU
NODE = Node(gpus=8, network=1e12, processor=1e12, memory=1e12)
STORAGE = Storage(servers=1, server=1e15)


def test_nothing_in_the_way():
    assert simulate(JOB, NODE, STORAGE, 4) == pytest.approx(1, rel=1e-6)


@pytest.mark.parametrize("nodes", [1, 5, 32])
def test_one_server_is_shared(nodes):
    storage = Storage(servers=1, server=20e9)
    expected = min(1, 20 / (8 * nodes))
    assert bound(JOB, NODE, storage, nodes) == pytest.approx(expected)
    assert simulate(JOB, NODE, storage, nodes) == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("part", ["network", "processor"])
@pytest.mark.parametrize("nodes", [1, 32])
def test_what_each_node_has_is_not_shared(part, nodes):
    node = scaling.replace(NODE, **{part: 2e9})
    assert bound(JOB, node, STORAGE, nodes) == pytest.approx(0.25)
    assert simulate(JOB, node, STORAGE, nodes) == pytest.approx(0.25, rel=0.02)


def test_what_is_cached_is_not_read():
    slow = Storage(servers=2, server=1e6)
    assert simulate(JOB, NODE, slow, 16, cached=1) == pytest.approx(1, rel=1e-6)
    storage = Storage(servers=1, server=20e9)
    expected = 20 / (8 * 16 * 0.5)
    assert simulate(JOB, NODE, storage, 16, cached=0.5) == pytest.approx(expected, rel=0.05)


rates = st.floats(1e9, 100e9)


@settings(max_examples=50)
@given(
    node=st.builds(Node, st.integers(1, 8), rates, rates, st.just(1e12)),
    storage=st.builds(Storage, st.integers(1, 20), rates),
    nodes=st.integers(1, 40),
    cached=st.sampled_from([0.0, 0.3, 1.0]),
    seed=st.integers(0, 3),
)
def test_never_more_than_the_bound(node, storage, nodes, cached, seed):
    share = simulate(JOB, node, storage, nodes, cached=cached, seed=seed)
    limit = bound(JOB, node, storage, nodes, cached)
    # Chunks are cached by chance, and batches that were ahead may be used up.
    assert 0 < share <= min(1 + 1e-6, 1.1 * limit)


def test_chance_costs_something_at_the_bound():
    """Shards fall on servers unevenly, and all nodes wait for the slowest."""
    storage = Storage(servers=20, server=8e9)
    assert bound(JOB, NODE, storage, 20) == 1
    at_once = simulate(JOB, NODE, storage, 20, depth=1)
    ahead = simulate(JOB, NODE, storage, 20, depth=4)
    assert 0.5 < at_once < ahead < 0.999
    assert simulate(JOB, NODE, storage, 10) > 0.999  # half the load hides it


@given(
    st.lists(st.integers(0, 4), max_size=30),
    st.lists(st.floats(0, 5), min_size=5, max_size=5),
    st.floats(0, 5),
)
def test_servers_against_a_loop(servers, busy, asked):
    free = np.array(busy)
    left = scaling._serve_together(
        np.array(servers, np.int64), free, asked, 0.5, np.random.default_rng(0)
    )
    for number, until in enumerate(busy):
        times = sorted(time for time, server in zip(left, servers, strict=True) if server == number)
        expected = [max(until, asked) + 0.5 * (i + 1) for i in range(len(times))]
        assert times == pytest.approx(expected)
        assert free[number] == pytest.approx(expected[-1] if times else until)


@given(st.lists(st.floats(0, 10), min_size=1, max_size=20), st.floats(0, 5))
def test_a_queue_against_a_loop(arrivals, until):
    arrivals.sort()
    free = np.array([until])
    done = scaling._in_turn(np.array([arrivals]), free, 0.25)
    time = until
    for arrival, leaves in zip(arrivals, done[0], strict=True):
        time = max(time, arrival) + 0.25
        assert leaves == pytest.approx(time)
    assert free[0] == pytest.approx(time)


def test_how_much_is_cached():
    shuffled, own = Plan(8e12, own_shards=False), Plan(8e12, own_shards=True)
    assert [shuffled.cached(NODE, nodes) for nodes in (1, 8)] == [0.125, 0.125]
    assert [own.cached(NODE, nodes) for nodes in (1, 4, 8, 16)] == [0.125, 0.5, 1, 1]


def test_knee():
    assert knee({1: 1.0, 2: 0.96, 4: 0.9, 8: 0.5}) == 4
    assert knee({1: 1.0, 2: 0.99}) is None


def test_the_plans_of_the_guide():
    """What docs/scaling.md says of them."""
    first = {
        name: knee(scaling.sweep(job, scaling.NODE, scaling.STORAGE, plan))
        for name, (job, plan) in scaling.PLANS.items()
    }
    assert first == {
        "ResNet-50, float32 files": 16,
        "ResNet-50, uint8 files": 64,
        "ResNet-50, uint8, own shards": None,
        "ViT-L/16, uint8 files": 128,
        "7B model, uint16 tokens": None,
    }


def test_rates_of_this_machine(tmp_path):
    measured = scaling.measure_node(tmp_path, size=80 * 2**20)
    assert len(measured) == 3
    assert min(measured.values()) > 0
    assert list(tmp_path.iterdir()) == []
