"""Draws how much padding batches of similar lengths save: ``PYTHONPATH=. python docs/plots/padding.py``.

The texts are the page's: the docstrings of Python's standard library, a byte as a token.
"""

import ast
import pathlib
import sysconfig

import numpy as np
from drawing import PEER, PINFEED, new_plot, save_plot

import pinfeed

MAX_TOKENS = (2048, 8192, 32768)
BUCKETS = (1, 2, 5, 10, 20, 50, 100)


def docstring_lengths() -> np.ndarray:
    """Returns the length of each docstring in bytes."""
    lengths = []
    for path in sorted(pathlib.Path(sysconfig.get_path("stdlib")).glob("*.py")):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node):
                lengths.append(len(ast.get_docstring(node).encode()))
    return np.array(lengths).clip(max=min(MAX_TOKENS))


def main() -> None:
    """Draws one line per `max_tokens`."""
    lengths = docstring_lengths()
    figure, axes = new_plot(f"Padding in batches of {len(lengths):,} texts", height=2.8)
    for max_tokens, style in zip(MAX_TOKENS, (":", "--", "-"), strict=True):
        shares = [
            pinfeed.samplers.LengthBucketSampler(
                lengths, max_tokens=max_tokens, bucket_batches=bucket
            ).padding_fraction
            for bucket in BUCKETS
        ]
        percents = [100 * share for share in shares]
        label = f"max_tokens={max_tokens}"
        axes.plot(BUCKETS, percents, style, color=PINFEED, marker="o", markersize=4, label=label)
        axes.plot(BUCKETS[0], percents[0], "o", color=PEER)
        print(label, [f"{percent:.0f} %" for percent in percents])
    axes.annotate("random order", (BUCKETS[0], percents[0]), (1.15, 78), color=PEER)
    axes.set(xscale="log", ylim=(0, 85), xlabel="bucket_batches", ylabel="% of a batch")
    axes.set_xticks(BUCKETS, [str(bucket) for bucket in BUCKETS], minor=False)
    axes.minorticks_off()
    axes.legend(frameon=False, fontsize=9)
    save_plot(figure, "padding")


if __name__ == "__main__":
    main()
