"""The speeds that pinfeed promises, each with what was measured. Shown, never asserted."""

import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from bench import collators, small_batches
from bench.images import SIZES
from bench.tables import table

Results = Mapping[str, Mapping[str, Any]]


class NotMeasured(Exception):
    """The workload did not run, or the way in it did not."""


@dataclass(frozen=True)
class Target:
    """One promise: a measured value that is at most, or at least, a bound.

    One with an `isa` is made only where that instruction set is in use.
    """

    text: str
    sign: str
    bound: float
    value: Callable[[Results], float]
    isa: str = ""


def _ways(results: Results, workload: str) -> list[Mapping[str, Any]]:
    if workload not in results:
        raise NotMeasured(f"{workload} was not run")
    return results[workload]["ways"]


def _way(results: Results, workload: str, *words: str) -> Mapping[str, Any]:
    """Return the first way whose name holds every word."""
    for way in _ways(results, workload):
        if all(word in way["name"] for word in words):
            if way["status"] != "ok":
                raise NotMeasured(f"{way['name']}: {way['status']}")
            return way
    raise NotMeasured(f"{workload} has no way {' '.join(words)}")


def _median(way: Mapping[str, Any], kind: str) -> float:
    """The median of a way's ratios to the limit or to pinfeed."""
    if not way.get(kind):
        raise NotMeasured(f"{way['name']} or what it is compared with: {way['status']}")
    return way[kind]["median"]


def to_limit(workload: str, *words: str) -> Callable[[Results], float]:
    """How many times the physical limit pinfeed takes; the limit may be pinfeed doing less."""

    def value(results: Results) -> float:
        ways = [way for way in _ways(results, workload) if way["role"] == "pinfeed"]
        return _median(_way({workload: {"ways": ways}}, workload, *words), "to_limit")

    return value


def faster_than(workload: str, *words: str) -> Callable[[Results], float]:
    """How many times pinfeed's time that peer takes."""
    return lambda results: _median(_way(results, workload, *words), "to_pinfeed")


def fastest_peer(workload: str, prefix: str = "") -> Callable[[Results], float]:
    """The fastest peer (whose name starts with `prefix`) in times of pinfeed's fastest form."""

    def value(results: Results) -> float:
        ratios: dict[str, list[float]] = {"peer": [], "pinfeed": []}
        for way in _ways(results, workload):
            chosen = way["role"] == "pinfeed" or way["name"].startswith(prefix)
            if chosen and way["role"] in ratios and way.get("to_pinfeed"):
                ratios[way["role"]].append(way["to_pinfeed"]["median"])
        if not all(ratios.values()):
            raise NotMeasured(f"{workload}: no peer, or pinfeed itself, was measured")
        return min(ratios["peer"]) / min(ratios["pinfeed"])

    return value


def _slowest_offset(workload: str) -> Callable[[Results], float]:
    """The slowest unaligned output in times of one that begins a cache line."""

    def value(results: Results) -> float:
        _way(results, workload, "begins a line")
        ways = _ways(results, workload)
        return max(_median(way, "to_limit") for way in ways if way["role"] == "pinfeed")

    return value


def _beyond_overhead(results: Results) -> float:
    """Time beyond DataLoader's own, in times of writing the output; paired round by round."""
    ours = _way(results, "epoch", "pinfeed")["samples_s"]
    overhead = _way(results, "epoch", "DataLoader alone")["samples_s"]
    limit = _way(results, "epoch", "physical limit")["samples_s"]
    return statistics.median((a - b) / c for a, b, c in zip(ours, overhead, limit, strict=False))


def _probes(results: Results, workload: str, *keys: str) -> Iterable[Mapping[str, Any]]:
    chosen = [way for way in _ways(results, workload) if way["key"] in keys]
    for way in chosen:
        if way["status"] != "ok":
            raise NotMeasured(f"{way['name']}: {way['status']}")
    return chosen


def _later_faults(results: Results) -> float:
    """Most faults of any batch after the first, each dropped before the next."""
    probes = _probes(results, "page-faults", "pinfeed", "collate")
    return max(max(way["report"]["faults"][1:]) for way in probes if not way["kept"])


def _later_time(results: Results) -> float:
    """A later pooled batch against one into a reused buffer."""
    medians = {
        way["key"]: statistics.median(way["report"]["seconds"][1:])
        for way in _probes(results, "page-faults", "pinfeed", "out")
        if not way["kept"]
    }
    return medians["pinfeed"] / medians["out"]


def _mixture_faults(results: Results) -> float:
    keys = ("sizes", "loaders", "leaves", "changing")
    return max(way["report"]["faults"] for way in _probes(results, "mixtures", *keys))


def _planned(results: Results) -> float:
    return statistics.median(_way(results, "pack-plan", "pinfeed")["samples_s"])


def _packed(workload: str, times: float) -> Callable[[Results], float]:
    """A batch against copying as many bytes so many times, and 10 µs."""

    def value(results: Results) -> float:
        limit = _way(results, workload, "physical limit")["samples_s"]
        ours = _way(results, workload, "pinfeed")["samples_s"]
        return statistics.median(ours) / (times * statistics.median(limit) + 10e-6)

    return value


def _memory(results: Results) -> float:
    probes = _probes(results, "memory", "pinfeed", "collate")
    return max(way["report"]["beyond"] for way in probes)


def _drained(results: Results) -> float:
    """Peak memory of the forms that know the length and those that don't."""
    probes = _probes(results, "drain-memory", "pinfeed", "pinfeed-iterator")
    return max(way["report"]["peak"] for way in probes)


def _import(results: Results) -> float:
    return _way(results, "import", "pinfeed")["values"][0]


def _ratio(
    workload: str, one: tuple[str, ...], other: tuple[str, ...]
) -> Callable[[Results], float]:
    """The time of one way in times of another's, round by round."""

    def value(results: Results) -> float:
        ways = (_way(results, workload, *words)["samples_s"] for words in (one, other))
        return statistics.median(a / b for a, b in zip(*ways, strict=False))

    return value


def _dataset(column: int) -> Callable[[Results], float]:
    """A column of what pinfeed's dataset of sequences costs."""

    def value(results: Results) -> float:
        (way,) = _probes(results, "dataset-memory", "pinfeed")
        return way["values"][column]

    return value


def _worker(workload: str, column: str, way: str = "pinfeed") -> Callable[[Results], float]:
    """A column of one way to get batches from workers."""

    def value(results: Results) -> float:
        row = _way(results, workload, way)
        return row["report"][column]

    return value


def _worker_cpu(results: Results) -> float:
    """CPU seconds of all processes, to those of torch's way."""
    ours, theirs = (_worker("workers-jpeg", "cpu_s", way) for way in ("pinfeed", "per sample"))
    return ours(results) / theirs(results)


TARGETS = [
    Target("rows planned for 10 million documents, s", "≤", 1, _planned),
    Target("resuming at batch 100,000: to planning", "≤", 1.05, to_limit("pack-resume")),
    Target("shuffled epoch, packed: TRL", "≥", 5, faster_than("pack-epoch-small", "TRL")),
    Target("shuffled epoch, packed: torchtune", "≥", 5, faster_than("pack-epoch-small", "tune")),
    *(
        Target(f"packed tokens, {dtype}: {text}", "≤", 1, _packed(f"pack-fill-{dtype}{end}", times))
        for dtype in ("int32", "int64")
        for text, end, times in (
            ("to 1.3 × copying them + 10 µs", "", 1.3),
            ("with all that models take: to 2 × copying + 10 µs", "-marked", 2),
        )
    ),
    Target("lists flattened: transformers", "≥", 5, faster_than("pack-flat", "transformers")),
    *(
        Target(f"{name}, {count} features", "≥", 10, faster_than(f"{name}-{count}", "transformers"))
        for name in collators.COLLATORS
        for count in collators.COUNTS
    ),
    Target("float32 NCHW to filling it", "≤", 1.10, to_limit("images")),
    Target("float16 NCHW to filling it, AVX-512", "≤", 1.30, to_limit("images-float16"), "avx512"),
    Target(
        "bfloat16 NCHW to filling it, AVX-512", "≤", 1.30, to_limit("images-bfloat16"), "avx512"
    ),
    Target("float16 NCHW to filling it, AVX2", "≤", 2, to_limit("images-float16", "avx2")),
    Target("bfloat16 NCHW to filling it, AVX2", "≤", 2, to_limit("images-bfloat16", "avx2")),
    *(
        Target(
            f"{job}: unaligned output to aligned",
            "≤",
            1.10,
            _slowest_offset(f"unaligned-outputs-{job}"),
        )
        for job in ("normalize", "permute", "gather", "pad")
    ),
    Target("gathered float32 to filling it", "≤", 1.35, to_limit("gathered")),
    *(
        Target(
            f"two threads to one, {size}",
            "≤",
            1.00,
            faster_than(f"threads-{size}", "pinfeed", "2 threads"),
        )
        for size in ("224x224-256", "32x32-256", "32x32-1")
    ),
    Target("torchvision per sample", "≥", 15, faster_than("images", "torchvision", "per sample")),
    Target("cv2.dnn.blobFromImages", "≥", 12, faster_than("images", "blobFromImages")),
    Target("best hand-written torch", "≥", 4, faster_than("images", "torch, best")),
    Target("DALI's CPU operator", "≥", 3, faster_than("images", "DALI")),
    Target("page faults of a later batch", "≤", 16, _later_faults),
    Target("later pooled batch to reused buffer", "≤", 1.10, _later_time),
    Target("page faults of a mixture's round", "≤", 16, _mixture_faults),
    Target("epoch: DataLoader(TensorDataset)", "≥", 10, faster_than("epoch", "TensorDataset")),
    Target("epoch: torchvision per sample", "≥", 60, faster_than("epoch", "torchvision")),
    Target("epoch beyond DataLoader to writing it", "≤", 3, _beyond_overhead),
    Target("uint16 images to reading and filling", "≤", 1.2, to_limit("images-uint16")),
    Target("float32 images to reading and filling", "≤", 1.2, to_limit("images-float32")),
    Target("clips to the same pixels as images", "≤", 1.05, to_limit("clips")),
    Target("epoch with crops and flips to without", "≤", 1.25, to_limit("epoch-augmented")),
    Target(
        "random resized crops: torchvision v2", "≥", 5, faster_than("images-resized", "torchvision")
    ),
    Target(
        "random resized crops to bfloat16: to float32",
        "≤",
        1,
        _ratio("images-resized", ("bfloat16",), ("**pinfeed**",)),
    ),
    Target(
        "random resized crops, one thread to two",
        "≥",
        1.9,
        _ratio("threads-resized", ("1 thread",), ("2 threads",)),
    ),
    Target("large images flipped to not", "≤", 1.05, to_limit("images-flipped", "half")),
    *(Target(f"{size}: fastest peer", "≥", 1, fastest_peer(f"size-{size}")) for size in SIZES),
    Target("224x224-256: fastest peer", "≥", 1, fastest_peer("images")),
    Target("one 32x32: torch's own ops", "≥", 1, fastest_peer("size-32x32-1", "torch,")),
    Target("peak memory beyond live batches", "≤", 2, _memory),
    Target(
        "pad ndarrays: from_numpy + pad_sequence", "≥", 8, faster_than("pad-ndarrays", "from_numpy")
    ),
    Target("pad tensors: pad_sequence", "≥", 6, faster_than("pad-tensors", "pad_sequence")),
    Target(
        "pad lists: DataCollatorWithPadding",
        "≥",
        100,
        faster_than("pad-lists", "DataCollatorWithPadding"),
    ),
    Target("pad lists: fastest by NumPy", "≥", 2, fastest_peer("pad-lists", "NumPy")),
    Target(
        "pad (L, 80) float32: pad_sequence", "≥", 1.7, faster_than("pad-frames", "pad_sequence")
    ),
    Target("pad (L, 80) float32 to filling it", "≤", 1.35, to_limit("pad-frames")),
    Target("epoch of sequences: list of tensors", "≥", 10, faster_than("epoch-ragged", "tensors")),
    Target(
        "a table of 16 chunks to one chunk",
        "≤",
        1.5,
        _ratio("chunked-tables", ("16 chunks",), ("one chunk",)),
    ),
    Target(
        "epoch of a table: datasets' torch format", "≥", 20, faster_than("epoch-arrow", "torch")
    ),
    Target(
        "epoch of a table of images: datasets' torch format",
        "≥",
        20,
        faster_than("epoch-arrow-images", "torch"),
    ),
    Target(
        "images of different sizes: torchvision, canvas of zeros",
        "≥",
        10,
        faster_than("images-mixed-sizes", "torchvision", "canvas"),
    ),
    Target("Collate(Jagged) to memcpy", "≤", 1.2, to_limit("join-frames")),
    Target("from_padded to memcpy", "≤", 1.2, to_limit("unpad-frames", "from_padded")),
    Target("unpad to memcpy", "≤", 1.2, to_limit("unpad-frames", "pinfeed", "`unpad`")),
    Target("sequence in a dataset beyond its data, bytes", "≤", 8.5, _dataset(0)),
    Target("a forked worker's growth, bytes a sequence", "≤", 8, _dataset(2)),
    Target("to_numpy to copying the result once", "≤", 1.3, to_limit("drain", "pinfeed")),
    Target("to_numpy: peak less 2 batches, to the result", "≤", 1.05, _drained),
    Target("to_tensorflow to the loader alone", "≤", 1.11, to_limit("tensorflow")),
    Target(
        "to_tensorflow, NCHW → NHWC: permute, ascontiguousarray",
        "≥",
        3,
        faster_than("tensorflow-channels-last", "ascontiguousarray"),
    ),
    Target(
        "to_tensorflow, NCHW → NHWC, to copying it",
        "≤",
        1.3,
        to_limit("tensorflow-channels-last"),
    ),
    *(
        Target(
            f"StreamDataset{text} to its source, {kind}", "≤", 1.11, to_limit(f"stream-{kind}", way)
        )
        for kind in ("json", "images")
        for text, way in (("", "`StreamDataset`"), (" with a buffer", "buffer of"))
    ),
    *(
        Target(
            f"StreamDataset with a buffer to one written by hand, {kind}",
            "≤",
            1.05,
            _ratio(f"stream-{kind}", ("buffer of", "`StreamDataset`"), ("drawn in blocks",)),
        )
        for kind in ("json", "images")
    ),
    Target(
        "a stream's state every 100 batches to never",
        "≤",
        1.03,
        _ratio("resume", ("`, asked every 100",), ("`, asked never",)),
    ),
    Target(
        "a stream's state with every batch to none, asked as often",
        "≤",
        1.03,
        _ratio("resume", ("`, asked always",), ("without state", "always")),
    ),
    *(
        Target(f"rows of {size} in memory: fastest peer", "≥", 1, fastest_peer(f"gather-{name}"))
        for name, size in (("64B", "64 B"), ("512B", "512 B"), ("3KB", "3 KB"), ("150KB", "150 KB"))
    ),
    Target("cold rows of 150 KB: np.take", "≥", 6, faster_than("cold-rows-150KB", "NumPy `take`")),
    Target("cold rows of 150 KB to 16 readers", "≤", 1 / 0.9, to_limit("cold-rows-150KB")),
    Target("cold rows of 3 KB: np.take", "≥", 4, faster_than("cold-rows-3KB", "NumPy `take`")),
    *(
        Target(
            f"prefetch_rows, cold rows of {size}: without",
            "≥",
            1,
            faster_than(f"prefetch-{name}", "not asked"),
        )
        for name, size in (("150KB", "150 KB"), ("3KB", "3 KB"))
    ),
    Target("hot rows of 150 KB to memory", "≤", 1 / 0.95, to_limit("hot-rows-150KB", "the file")),
    Target("hot rows of 3 KB to memory", "≤", 1 / 0.95, to_limit("hot-rows-3KB", "the file")),
    Target(
        "hot rows of 3 KB to memory in small pages",
        "≤",
        1 / 0.95,
        _ratio("hot-rows-3KB", ("the file",), ("in a tensor",)),
    ),
    Target("10,000 cold files to one", "≤", 1.1, to_limit("parts-cold-150KB", "ConcatArray")),
    Target("10,000 hot files to one", "≤", 1.1, to_limit("parts-hot-150KB", "ConcatArray")),
    Target("10,000 cold files, 3 KB rows", "≤", 1.1, to_limit("parts-cold-3KB", "ConcatArray")),
    Target("10,000 hot files, 3 KB rows", "≤", 1.1, to_limit("parts-hot-3KB", "ConcatArray")),
    Target(
        "workers: DataLoader with default_collate",
        "≥",
        6,
        _worker("workers-images", "to_pinfeed", "DataLoader"),
    ),
    Target("workers: trainer's CPU a batch, ms", "≤", 1, _worker("workers-images", "trainer_ms")),
    Target("workers: trainer's page faults a batch", "≤", 1, _worker("workers-images", "faults")),
    Target("workers: new mappings a batch", "≤", 0.01, _worker("workers-images", "mappings")),
    Target("workers: new files a batch", "≤", 0.01, _worker("workers-images", "files")),
    Target(
        "workers that decode: DataLoader",
        "≥",
        1.15,
        _worker("workers-jpeg", "to_pinfeed", "DataLoader"),
    ),
    Target("workers that decode: CPU to DataLoader's", "≤", 0.85, _worker_cpu),
    Target(
        "workers, small batches: DataLoader",
        "≥",
        1,
        _worker("workers-small", "to_pinfeed", "DataLoader"),
    ),
    *(
        Target(
            f"default_collate, {count} samples: {kind}",
            "≥",
            1,
            faster_than(f"small-batches-{kind}-{count}", "default_collate"),
        )
        for kind in small_batches.SAMPLES
        for count in small_batches.COUNTS
    ),
    Target(
        "indices in random order: RandomSampler",
        "≥",
        5,
        faster_than("sampler-order", "RandomSampler"),
    ),
    Target(
        "first batch of 10^9 samples, ms",
        "≤",
        1,
        lambda results: _way(results, "sampler-first", "pinfeed")["median_s"] * 1000,
    ),
    Target(
        "epoch of short rows: torch's own sampler",
        "≥",
        2,
        faster_than("sampler-epoch", "torch's own sampler"),
    ),
    Target(
        "10^6 of 10^8 weighted draws, s",
        "≤",
        0.2,
        lambda results: _way(results, "sampler-weighted-large", "pinfeed")["median_s"],
    ),
    Target("import beyond torch, s", "≤", 0.1, _import),
]


def check(results: Results, facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Compare every target with what was measured, at the two decimals that are shown."""
    active = facts["pinfeed"]["isa"]["active"]
    records = []
    for target in TARGETS:
        record = {"target": target.text, "bound": f"{target.sign} {target.bound:g}"}
        try:
            if target.isa not in ("", active):
                raise NotMeasured(f"the instruction set in use is {active}")
            value = round(target.value(results), 2)
        except NotMeasured as reason:
            record |= {"measured": None, "verdict": f"not measured: {reason}"}
        else:
            met = value <= target.bound if target.sign == "≤" else value >= target.bound
            record |= {"measured": value, "verdict": "met" if met else "not met"}
        records.append(record)
    return records


def check_table(records: Iterable[Mapping[str, Any]]) -> str:
    """Return the comparison as a markdown table."""
    rows = (
        [
            record["target"],
            record["bound"],
            "-" if record["measured"] is None else f"{record['measured']:.2f}",
            record["verdict"],
        ]
        for record in records
    )
    return table(["target (ratio unless it says otherwise)", "bound", "measured", "verdict"], rows)
