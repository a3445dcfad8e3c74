"""`make guard`: counts the instructions of frequent calls, and fails if one takes many more than stored.

Instruction counts don't depend on the load of the machine, so a small tolerance is enough. They show
added work, Python's too, but neither cache misses nor waits: `make bench` measures these.

The calls run under valgrind's callgrind, on one thread, with AVX2. After a change that is meant to cost
or save instructions, `make guard ARGS=--write` stores the new counts.
"""

import argparse
import ctypes
import gc
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

STORED = Path(__file__).with_suffix(".json")
TOLERANCE = 1.15  # other CPUs and releases of NumPy and Python change counts by less
WARM_UP = 4  # calls until caches are filled and pools have buffers

REQUESTS = """
#include <valgrind/callgrind.h>
void begin(void) { CALLGRIND_ZERO_STATS; CALLGRIND_START_INSTRUMENTATION; }
void end(const char* name) { CALLGRIND_DUMP_STATS_AT(name); CALLGRIND_STOP_INSTRUMENTATION; }
"""


def calls() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yields the calls to count, with their names."""
    import numpy as np
    import torch
    import transformers
    from torch.utils.data import DataLoader

    import pinfeed
    from pinfeed.integrations import transformers as language

    torch.set_num_threads(1)
    pinfeed.set_num_threads(1)
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (256, 32, 32, 3), np.uint8)
    mean, std = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]

    columns = {name: rng.random((1000, 4), np.float32) for name in "abcd"}
    dataset, collate = pinfeed.ArrayDataset(columns), pinfeed.Collate()
    indices = rng.integers(0, 1000, 8).tolist()
    yield "Collate: 8 rows of 4 entries", lambda: collate(dataset.__getitems__(indices))
    samples = [{"x": torch.ones(4), "y": i, "z": np.ones(3)} for i in range(8)]
    yield "Collate: 8 dicts of a tensor, an int, an ndarray", lambda: collate(samples)
    numbers = list(range(256))
    yield "Collate: 256 ints", lambda: collate(numbers)
    image = pinfeed.Collate(pinfeed.Image(mean, std))
    yield "Collate: one image of 32×32", lambda: image([images[0]])
    rows = pinfeed.ArrayDataset(images)
    many = rng.permutation(256).tolist()
    yield "Collate: 256 images of 32×32", lambda: image(rows.__getitems__(many))
    view = pinfeed.augment.Compose(
        [pinfeed.augment.RandomCrop(32, padding=4), pinfeed.augment.RandomHorizontalFlip()]
    )
    augmented = pinfeed.Collate(pinfeed.Image(mean, std, augment=view), seed=0)
    yield "Collate: 256 images of 32×32, cropped", lambda: augmented(rows.__getitems__(many))
    boxes = rng.integers([0, 0, 16, 16], [16, 16, 32, 32], (20, 4))
    objects = [{"image": one, "boxes": boxes, "labels": boxes[:, 0]} for one in images[:16]]
    detection = pinfeed.Collate(
        {"image": pinfeed.Image(mean, std, augment=view), "boxes": pinfeed.Boxes()}
    )
    yield "Collate: 16 images of 32×32 with 20 boxes", lambda: detection(objects)

    batch = collate(dataset.__getitems__(many))
    yield "unbind: 256 samples", lambda: pinfeed.functional.unbind(batch)

    out = torch.empty(1, 3, 32, 32)
    yield (
        "normalize: one image of 32×32",
        lambda: pinfeed.functional.normalize(images[:1], mean, std),
    )
    tensor = torch.from_numpy(images)
    yield "normalize: out=", lambda: pinfeed.functional.normalize(tensor[:1], mean, std, out=out)
    yield "normalize: 256 images of 32×32", lambda: pinfeed.functional.normalize(tensor, mean, std)

    import PIL.Image

    noise = np.random.default_rng(1)
    photos = [noise.integers(0, 256, (375, 500, 4), np.uint8) for _ in range(4)]
    plain = {
        "RGB": [np.ascontiguousarray(photo[..., :3]) for photo in photos],
        "the RGB of RGBA": [photo[..., :3] for photo in photos],
    }
    plain["PIL"] = [PIL.Image.fromarray(photo) for photo in plain["RGB"]]
    small = pinfeed.augment.Compose(
        [pinfeed.augment.CenterCrop(300), pinfeed.augment.Resize((224, 224))]
    )
    for name, batch in plain.items():
        for step, field in {
            "normalized": pinfeed.Image(mean, std),
            "cropped and resized": pinfeed.Image(mean, std, augment=small),
        }.items():
            of_photos = pinfeed.Collate(field)
            yield f"Image: 4 photos, {name}, {step}", lambda c=of_photos, p=batch: c(p)

    texts = [np.arange(n) for n in rng.integers(1, 100, 256)]
    lists = [text.tolist() for text in texts]
    yield "pad: 256 arrays", lambda: pinfeed.functional.pad(texts)
    yield "pad: 256 lists", lambda: pinfeed.functional.pad(lists)
    tokens = pinfeed.RaggedArray.from_sequences(texts)
    ragged, pad = pinfeed.ArrayDataset(tokens), pinfeed.Collate(pinfeed.Pad(pad_value=0, mask=True))
    yield "Pad: 256 rows", lambda: pad(ragged.__getitems__(many))
    collator = language.DataCollatorForLanguageModeling(transformers.ByT5Tokenizer(), mlm=False)
    named = pinfeed.ArrayDataset({"input_ids": tokens})
    yield "language modeling: 256 rows", lambda: collator(named.__getitems__(many))
    jagged = pinfeed.Collate(pinfeed.Jagged())
    yield "Jagged: 256 rows", lambda: jagged(ragged.__getitems__(many))

    packs = pinfeed.samplers.PackSampler(tokens, batch_size=4, seq_length=256)
    pack = pinfeed.Collate(pinfeed.Pack(seq_length=256))
    first = next(iter(packs))
    yield "Pack: 4 rows of 256", lambda: pack(ragged.__getitems__(first))

    batches = [torch.ones(64, 10) for _ in range(40)]
    tuples = [(batch, batch) for batch in batches]
    yield "to_numpy: a list of 40 batches", lambda: pinfeed.to_numpy(batches)
    yield "to_numpy: a tuple of 40 batches", lambda: pinfeed.to_numpy(tuple(batches))
    yield "to_numpy: a generator of 40 batches", lambda: pinfeed.to_numpy(iter(batches))
    yield "to_numpy: 40 tuples", lambda: pinfeed.to_numpy(tuples)

    lengths = rng.integers(1, 100, 10_000)
    samplers = {
        "ShuffleSampler": pinfeed.samplers.ShuffleSampler(10_000, 64),
        "WeightedSampler": pinfeed.samplers.WeightedSampler(lengths, batch_size=64),
        "LengthBucketSampler": pinfeed.samplers.LengthBucketSampler(lengths, 64),
        "PackSampler": pinfeed.samplers.PackSampler(lengths, batch_size=4, seq_length=512),
    }
    for name, sampler in samplers.items():
        yield f"{name}: an epoch of 10,000", lambda sampler=sampler: sum(1 for _ in sampler)

    loader = DataLoader(dataset, 8, shuffle=True, collate_fn=collate)
    yield "DataLoader: 125 batches of 8 rows", lambda: sum(1 for _ in loader)
    fast = pinfeed.from_numpy(columns, 8, shuffle=True)
    yield "from_numpy: 125 batches of 8 rows", lambda: sum(1 for _ in fast)


def count_here(library: Path) -> None:
    """Runs every call, and has callgrind count it."""
    requests = ctypes.CDLL(str(library))
    for name, call in calls():
        for _ in range(WARM_UP):
            call()
        gc.collect()
        gc.disable()
        requests.begin()
        call()
        requests.end(name.encode())
        gc.enable()


def count() -> dict[str, int]:
    """Returns the number of instructions of each call."""
    if shutil.which("valgrind") is None:
        raise SystemExit("make guard needs valgrind; on Debian: apt-get install valgrind")
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "requests.c"), Path(folder, "requests.so")
        source.write_text(REQUESTS)
        compiler = os.environ.get("CC", "cc")
        subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
        command = ["valgrind", "--quiet", "--tool=callgrind", "--instr-atstart=no"]
        command += [f"--callgrind-out-file={folder}/count", sys.executable, "-m", "bench.guard"]
        fixed = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
        subprocess.run([*command, "--here", library], check=True, env=os.environ | fixed)
        counts = {}
        for path in sorted(Path(folder).glob("count.*"), key=lambda path: int(path.suffix[1:])):
            text = path.read_text()
            name = re.search(r"^desc: Trigger: Client Request: (.*)$", text, re.MULTILINE)
            total = re.search(r"^(?:totals|summary): (\d+)", text, re.MULTILINE)
            if name and total:
                counts[name[1]] = int(total[1])
    return counts


def main() -> int:
    """Counts, compares with the stored counts, and prints the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.guard", description=__doc__)
    parser.add_argument("--write", action="store_true", help="store the counts")
    parser.add_argument("--here", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        count_here(options.here)
        return 0
    counts = count()
    if options.write:
        STORED.write_text(json.dumps(counts, indent=1, ensure_ascii=False) + "\n")
    stored = json.loads(STORED.read_text())
    failed = 0
    for name in dict.fromkeys([*stored, *counts]):
        now, before = counts.get(name), stored.get(name)
        if now is None or before is None:
            failed += 1
            print(f"{name:50} {'not counted' if now is None else 'not stored'}; see --write")
            continue
        ratio = now / before
        failed += ratio > TOLERANCE
        verdict = f"more than {TOLERANCE} ×" if ratio > TOLERANCE else ""
        print(f"{name:50} {now:12,} {ratio:6.3f} × {verdict}")
    print(f"{len(counts) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
