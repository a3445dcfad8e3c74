"""write_array: complete files or none, and errors that name the sample."""

import os

import numpy as np
import PIL.Image
import pytest
import torch
from torch.utils.data import DataLoader

from pinfeed import to_numpy, write_array

ONE, LIST = np.zeros((1, 2)), [1, 2]
BFLOAT16 = torch.ones(1).bfloat16()
GRADIENT = torch.zeros(1, requires_grad=True)
MASKED = np.ma.masked_array(np.zeros((2, 3)), mask=True)
PALETTE = PIL.Image.new("P", (2, 2))
LOADER = DataLoader(range(4), 2)
WIDTHS = [np.zeros((2, 3)), np.zeros((2, 4))]


def of(*samples, **options):
    return {"samples": list(samples), **options}


# The path, the samples, and the message after "write_array: ".
TYPES = [
    ("x", {"samples": "text"}, "samples: expected an iterable of samples, got str"),
    ("x", {"samples": {"x": 1}}, r"samples: .* got dict; to_numpy\(\[columns\], out=path"),
    ("x", {"samples": 3}, "samples: expected an iterable of samples, got int"),
    ("x", {"samples": LOADER}, "expected samples, got a DataLoader, .*; to_numpy.loader, out=path"),
    ("x", of(LIST, dtype="S3"), "dtype must be a numeric or bool dtype of NumPy"),
    ("x.npy", of(1, 2.5), "sample 1: expected int64 like the first, got float32"),
    ("x.npy", of(1, 0.5, dtype="u1"), "sample 1: expected numbers that can be cast to uint8, got float64"),
    ("x.npy", of(1, "a"), "sample 1: expected numbers like .*, got str; put numbers and strings into sep"),
    ("x", of([], b"a"), "sample 1: expected numbers like .*, got bytes; .* an empty string is ''"),
    ("x.npy", of("a"), "batch 0: expected an array for a .npy file, got a list; pass the path of a directory"),
    ("x", of("a", 1), "sample 1: expected a string like the samples before, got int"),
    ("x", of(np.arange(3), None), "sample 1: expected an array .*, got NoneType; leave such samples out"),
    ("x", of(np.arange(3), object()), "put numbers, strings and objects into separate entries"),
    ("x", of({"a": {"b": 1}}), r"entry \['a'\] of sample 0: .*, got dict; make its entries keys of the sample itself, such as 'a\.b'"),
    ("x", of(np.arange(3), np.ones(2)), "set the dtype of all with dtype="),
    ("x", of({"x": "a"}, {"x": b"b"}), r"entry \['x'\] of batch 0: string 1: expected str"),
    ("x.npy", of(None), "sample 0: expected an array .*, got NoneType; leave such samples out"),
    ("x.npy", of(np.arange(3).astype(">i4")), "sample 0: expected the machine's byte order"),
    ("x.npy", of((ONE, 3)), "sample 0: expected an array or .* or a dict of arrays"),
    ("x.npy", of(BFLOAT16), r"sample 0: NumPy has no bfloat16; convert with \.float"),
    ("x.npy", of(GRADIENT), r"sample 0: .*\.detach\(\) first"),
    ("x.npy", of(PALETTE), r"sample 0: .*mode 'P'; convert it with \.convert\('RGB'\)"),
    ("x", of({"x": PALETTE}), r"entry \['x'\] of sample 0: .*mode 'P'"),
    ("x.npy", of(MASKED), "sample 0: .*mask"),
]  # fmt: skip
VALUES = [
    ("x", of(), "samples: expected at least one sample, got none"),
    ("x.npz", of(1), "ends in .npy, for one array, or the path of a directory, got .*npz'"),
    ("x", of([], []), "expected a sample that has a dtype, got empty lists only; set it with dtype="),
    ("x", of(LIST, 5), "sample 1: expected an array or a list of numbers, got a number; end the path"),
    ("x", of(np.float32(5)), "sample 0: expected an array or a list of numbers"),
    ("x", of(LIST, dtype={"x": "u1"}), "dtype: expected keys of the samples, got 'x', but sample 0 is not a dict"),
    ("x", of({"x": 1}, dtype={"y": "u1"}), "dtype: expected keys of the samples, got 'y', but sample 0 has the keys"),
    ("x.npy", of({"x": 1, "y": 2}), "a .npy file holds one array; pass the path of a directory"),
    ("x.npy", of({"x": LIST}, {"x": [1]}), r"entry \['x'\] of sample 1: a .npy file holds"),
    ("x", of({}), "expected a dict with at least one key"),
    ("x", of({3: 1, "3": 1}), r"entry \['3'\] of batch 0: another entry .* written to 3; rename"),
    ("x.npy", of(*WIDTHS), r"sample 1: .* \(2, 3\) as in sample 0, got \(2, 4\); only the first"),
    ("x.npy", of(LIST, [1, 2, 3]), "sample 1: a .npy file holds samples of one shape; pass the path"),
    ("x.npy", of(1, 300, dtype="u1"), "sample 1: 300 does not fit in uint8"),
    ("x.npy", of([[1], [2, 3]]), r"sample 0: .*inhomogeneous.*; np\.concatenate\(list\) joins lists"),
    ("x", of(*WIDTHS), r"sample 1: .*\(2, 3\).*\(2, 4\); only the first axis may differ"),
    ("x", of(np.zeros((2, 3, 3)), np.zeros((2, 4, 3))), "only the first axis may differ; resize images to one size, or write the bytes"),
    ("x", of(np.array(5)), "sample 0: expected an array or a list of numbers, got a number"),
    ("x", of({"x": 1, "y": 2}, {"x": 1}), r"sample 1: expected the keys \['x', 'y'\] .*\['x'\]"),
    ("x", of({"x": 1}, 2), r"sample 1: expected a dict of \['x'\] .*, got int"),
    ("x", of(LIST, {"x": 1}), "sample 1: expected a non-dict as in sample 0, got dict"),
]  # fmt: skip
REFUSED = [(*case, TypeError) for case in TYPES] + [(*case, ValueError) for case in VALUES]


@pytest.mark.parametrize(
    ("name", "given", "message", "error"),
    [*REFUSED, ("no/x.npy", of(1), "No such file or directory: '.*no/x.npy'", FileNotFoundError)],
)
def test_bad_samples_and_paths(tmp_path, name, given, message, error):
    with pytest.raises(error, match=message) as caught:
        write_array(tmp_path / name, **given)
    assert "write_array: " in str(caught.value) or "RaggedArray: " in str(caught.value)
    assert os.listdir(tmp_path) == []


def test_hints_of_errors_work(tmp_path):
    assert to_numpy(LOADER, tmp_path / "x.npy").tolist() == [0, 1, 2, 3]
    assert to_numpy([{"x": np.arange(3)}], out=tmp_path / "columns")["x"].tolist() == [0, 1, 2]
    assert list(write_array(tmp_path / "strings", ["", "a"])) == ["", "a"]
    bits = write_array(tmp_path / "y.npy", [BFLOAT16.view(torch.uint16)])
    assert bits.dtype == np.uint16
    pixels = write_array(tmp_path / "z.npy", [PALETTE.convert("RGB")])
    assert pixels.shape == (1, 2, 2, 3)
    mixed = write_array(tmp_path / "mixed", [np.arange(3), np.ones(2)], dtype=np.float64)
    assert [row.tolist() for row in mixed] == [[0, 1, 2], [1, 1]]
    empty = write_array(tmp_path / "empty", [[], []], dtype=np.uint8)
    assert (len(empty), empty.dtype) == (2, np.uint8)
    widths = write_array(tmp_path / "w", [{"x": LIST}, {"x": [1]}])
    assert [row.tolist() for row in widths["x"]] == [[1, 2], [1]]
