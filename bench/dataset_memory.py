"""What datasets of short sequences and of paths cost, and how much forked workers add to it."""

from typing import Any

from bench import string_probe
from bench.dataset_probe import LONGEST, WORKERS
from bench.fresh import probe

BATCH_SIZE = 10_000
MEGABYTE = 1e6

# What bench.dataset_probe builds: its key, what a table calls it, its role, and its sequences.
WAYS = {
    "indices": ("DataLoader alone (indices only)", "overhead", 500_000),
    "pinfeed": ("**pinfeed** `RaggedArray.from_sequences`", "pinfeed", 5_000_000),
    "tensors": ("list of tensors, `pad_sequence`", "peer", 500_000),
    "ndarrays": ("list of ndarrays, `from_numpy` + `pad_sequence`", "peer", 500_000),
}


def dataset_memory(name: str) -> dict[str, Any]:
    """Memory beyond the data itself, and a worker's own memory after an epoch."""
    ways = []
    for key, (label, role, count) in WAYS.items():

        def values(report, count=count):
            grown = report["growth"]
            return [report["beyond"], grown / MEGABYTE, grown / count]

        arguments = ["bench.dataset_probe", key, str(count), str(BATCH_SIZE)]
        ways.append(probe(f"{label}, {count:,}", role, arguments, values) | {"key": key})
    return {
        "name": name,
        "title": f"Memory of datasets of int32 sequences of 1–{LONGEST}, and growth of one of "
        f"{WORKERS} forked workers in a shuffled epoch, batches of {BATCH_SIZE:,}",
        "kind": "counts",
        "columns": [
            "beyond the data, bytes a sequence",
            "growth, MB",
            "growth, bytes a sequence",
        ],
        "ways": ways,
    }


# What bench.string_probe builds.
STRING_WAYS = {
    "indices": ("DataLoader alone (indices only)", "overhead"),
    "pinfeed": ("**pinfeed** `RaggedArray.from_strings`", "pinfeed"),
    "list": ("list of str", "peer"),
    "objects": ("`np.array(paths, object)`", "peer"),
}
PATHS = 10_000_000


def string_memory(name: str) -> dict[str, Any]:
    """Memory of datasets of paths, alone and in an epoch with forked workers."""

    def values(report):
        return [report["size"], report["before"] / MEGABYTE, report["after"] / MEGABYTE]

    ways = [
        probe(label, role, ["bench.string_probe", key, str(PATHS)], values) | {"key": key}
        for key, (label, role) in STRING_WAYS.items()
    ]
    return {
        "name": name,
        "title": f"{PATHS:,} paths: memory of the dataset, and of the trainer and "
        f"{string_probe.WORKERS} forked workers together (proportional set size), shuffled",
        "kind": "counts",
        "columns": ["bytes a path", "before an epoch, MB", "after it, MB"],
        "ways": ways,
    }


WORKLOADS = {"dataset-memory": dataset_memory, "string-memory": string_memory}
