"""PINFEED_DEBUG=1: elements that a dtype can't hold are an error, and nothing else changes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pinfeed
from samples import run_python


def gathered(sample: Any, dtype: Any) -> Any:
    ragged = pinfeed.RaggedArray(sample, np.array([0, len(sample)]))
    return pinfeed.Collate(pinfeed.Pad(dtype=dtype))(pinfeed.ArrayDataset(ragged).__getitems__([0]))


WAYS: dict[str, Callable[[Any, Any], Any]] = {
    "pad": lambda sample, dtype: pinfeed.pad([sample], dtype=dtype),
    "Pad": lambda sample, dtype: pinfeed.Collate(pinfeed.Pad(dtype=dtype))([sample]),
    "Jagged": lambda sample, dtype: pinfeed.Collate(pinfeed.Jagged(dtype))([sample]),
}
OF_ARRAYS: dict[str, Callable[[Any, Any], Any]] = {
    "gather": gathered,
    "to_padded": lambda sample, dtype: pinfeed.JaggedBatch(
        sample, np.array([0, len(sample)])
    ).to_padded(dtype=dtype),
}

BEYOND = {
    "int to uint8": lambda: (np.array([1, 300]), np.uint8),
    "negative": lambda: (torch.tensor([-1]), np.uint64),
    "uint64 to int64": lambda: (np.array([2**63], np.uint64), torch.int64),
    "float64 to float32": lambda: (np.array([1e39]), np.float32),
    "bfloat16 to float16": lambda: (torch.tensor([7e4], dtype=torch.bfloat16), torch.float16),
    "int to float16": lambda: (np.array([70000]), torch.float16),
    "just too large for float16": lambda: (np.array([65519.9999999]), torch.float16),
    "complex": lambda: (np.array([[1j, 1e39]]), torch.complex64),
    "complex with strides": lambda: (np.array([1j, 0, 1e39, 0])[::2], torch.complex64),
    "list of floats": lambda: ([1.0, 70000.0], torch.float16),
    "list of floats to float32": lambda: ([0.5, 1e39], torch.float32),
    "list of ints to uint8": lambda: ([70000], torch.uint8),
    "list of ints to float16": lambda: ([70000], torch.float16),
}
WITHIN = {
    "uint8": lambda: (np.array([0, 255]), np.uint8),
    "no finite numbers": lambda: (np.array([np.nan, np.inf, -np.inf]), np.float16),
    "float16": lambda: (np.array([65519, -65519, 1e-30]), np.float16),
    "no numbers": lambda: (np.zeros((0, 3)), np.float16),
    "no numbers of complex": lambda: (np.zeros((2, 0), np.complex128), np.complex64),
    "complex with strides": lambda: (np.ones((2, 4), np.complex128)[:, ::2], np.complex64),
    "transposed": lambda: (np.ones((2, 3), np.complex128).T, np.complex64),
    "bfloat16": lambda: (torch.ones(3, dtype=torch.bfloat16), torch.float32),
    "to bfloat16": lambda: (torch.full((2,), 3e38), torch.bfloat16),
    "bools": lambda: (np.array([True]), np.uint8),
    "list of floats": lambda: ([1.5, float("nan")], np.float16),
    "list of bools": lambda: ([True], np.uint8),
}
# Refused anyway; the message must stay.
REFUSED = {
    "gradients": lambda: (torch.ones(3, requires_grad=True), torch.float16),
    "conjugated": lambda: (torch.ones(3, dtype=torch.complex64).conj(), torch.complex128),
    "meta": lambda: (torch.ones(3, device="meta"), torch.float16),
    "sparse": lambda: (torch.eye(3).to_sparse(), torch.float16),
    "objects": lambda: (np.array([None]), np.float16),
    "dates": lambda: (np.array(["2020"], "M8[D]"), np.int64),
    "float to int": lambda: (np.array([1e10]), np.int32),
    "complex to float": lambda: (np.array([1e39j]), np.float32),
    "float8": lambda: (torch.zeros(3).to(torch.float8_e4m3fn), torch.float16),
    "0-d": lambda: (np.array(300), np.uint8),
}


def outcomes() -> dict[str, str]:
    """What each way makes of each case: an error, or its absence."""
    result = {}
    for kind, cases in {"beyond": BEYOND, "within": WITHIN, "refused": REFUSED}.items():
        for case, make in cases.items():
            sample, dtype = make()
            ways = WAYS if isinstance(sample, list) or kind == "refused" else WAYS | OF_ARRAYS
            for way, call in ways.items():
                try:
                    call(sample, dtype)
                    text = "fits"
                except Exception as error:
                    text = f"{type(error).__name__}: {error}"
                result[f"{kind}, {case}, {way}"] = text
    return result


def cut_short(path: str) -> list[str]:
    """What becomes of values in a file that loses its end."""
    np.save(path, np.ones(1 << 16))
    values, offsets = np.load(path, mmap_mode="r"), np.array([0, 1 << 16])
    rows = pinfeed.ArrayDataset(pinfeed.RaggedArray(values, offsets)).__getitems__([0])
    os.truncate(path, 4096)
    calls: list[Callable[[], Any]] = [
        lambda: pinfeed.Collate(pinfeed.Pad(dtype=np.float32))(rows),
        lambda: pinfeed.Collate(pinfeed.Jagged(np.float32))(rows),
        lambda: pinfeed.pad([values[:9], values[-9:]], dtype=np.float32),
        lambda: pinfeed.pad([[1.0], values[-9:]], dtype=np.float64),
        lambda: pinfeed.pad(pinfeed.JaggedBatch(np.ones(1 << 16), values[-9:].view(np.int64))),
        lambda: pinfeed.JaggedBatch(values, offsets).to_padded(dtype=np.float32),
        lambda: pinfeed.JaggedBatch.from_padded(values.reshape(2, -1), [1, 1 << 15]),
    ]
    errors = []
    for call in calls:
        try:
            call()
            errors.append("none")
        except OSError as error:
            errors.append(str(error))
    return errors


PROGRAM = """
import json, os, sys

os.environ["PINFEED_DEBUG"] = "1"
sys.path.insert(0, sys.argv[1])
import test_pad_debug as cases

print(json.dumps(cases.outcomes() | {"cut": cases.cut_short(sys.argv[2])}))
"""


@pytest.fixture(scope="module")
def debug(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("arrays") / "values.npy"
    outcomes: dict[str, Any] = json.loads(
        run_python(PROGRAM, str(Path(__file__).parent), str(path))
    )
    return outcomes


def test_elements_that_do_not_fit(debug: dict[str, Any]) -> None:
    found = {case: text for case, text in debug.items() if case.startswith("beyond")}
    assert len(found) == 5 * len(BEYOND) - 2 * 4
    wrong = [
        (case, text)
        for case, text in found.items()
        if not text.startswith("ValueError: ") or "can hold, got" not in text
    ]
    assert wrong == []
    assert [case for case, text in found.items() if "of sample 0: " not in text] == []


def test_elements_that_fit(debug: dict[str, Any]) -> None:
    found = {case: text for case, text in debug.items() if case.startswith("within")}
    assert len(found) == 5 * len(WITHIN) - 2 * 2
    assert {case: text for case, text in found.items() if text != "fits"} == {}


def test_what_is_refused_anyway_is_refused_alike(debug: dict[str, Any]) -> None:
    plain = outcomes()
    refused = {case: text for case, text in plain.items() if case.startswith("refused")}
    assert len(refused) == len(WAYS) * len(REFUSED)
    assert [case for case, text in refused.items() if text == "fits"] == []
    assert {case: debug[case] for case in refused} == refused


def test_a_file_that_was_cut_short(debug: dict[str, Any]) -> None:
    assert len(debug["cut"]) == 7
    assert [error for error in debug["cut"] if "cut short" not in error] == []
