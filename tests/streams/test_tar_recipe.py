"""The recipe for .tar files on the streams page, with shards from GNU tar."""

import io
import runpy
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

import pinfeed

read_tar = runpy.run_path(Path(__file__).parents[2] / "docs" / "recipes" / "read_tar.py")[
    "read_tar"
]


def _is_gnu_tar():
    if shutil.which("tar") is None:
        return False
    version = subprocess.run(["tar", "--version"], capture_output=True, text=True, check=True)
    return "GNU tar" in version.stdout


WAYS = {
    "the folder": ["."],
    "from outside": ["photos.v1.2"],
    "every file": None,
    "compressed, long names": ["--format=pax", "-z", "."],
}


@pytest.mark.skipif(not _is_gnu_tar(), reason="needs GNU tar")
@pytest.mark.parametrize("way", WAYS)
def test_shards_of_gnu_tar(way, tmp_path):
    folder = tmp_path / "photos.v1.2"
    files = {"README": b"no sample", ".hidden": b"", "cat.cls": b"3", "cat.txt": b"a cat"}
    files |= {"dog.seg.png": b"pixels", "dog.txt": b"a dog", "sub/cat.txt": b"another"}
    long = "x" * 120  # needs a second header
    if way == "compressed, long names":
        files[f"{long}.txt"] = b"long"
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    if way != "every file":
        (folder / "cat.old").symlink_to("cat.txt")
        (folder / "dog.copy").hardlink_to(folder / "dog.txt")
        (folder / "empty.d").mkdir()
    shard = tmp_path / "photos.tar"
    inside = tmp_path if way == "from outside" else folder
    command = ["tar", "--sort=name", "-cf", shard, *(WAYS[way] or reversed(files))]
    subprocess.run(command, cwd=inside, check=True, timeout=60)
    stream = pinfeed.StreamDataset([str(shard)], open_shard=read_tar)
    prefix = "photos.v1.2/" if way == "from outside" else ""
    expected = [
        {"name": f"{prefix}cat", "cls": b"3", "txt": b"a cat"},
        {"name": f"{prefix}dog", "seg.png": b"pixels", "txt": b"a dog"},
        {"name": f"{prefix}sub/cat", "txt": b"another"},
    ]
    if way != "every file":
        expected[0]["old"], expected[1]["copy"] = b"a cat", b"a dog"
    if way == "compressed, long names":
        expected.append({"name": long, "txt": b"long"})
    actual = sorted(stream, key=lambda sample: sample["name"])
    assert actual == expected


@pytest.mark.parametrize("way", ["-cf", "-czf"])
def test_shards_in_any_order(way, tmp_path):
    """Without ``--sort=name``, files are in the order of their folder, which can be any."""
    names = ["b.txt", "a.cls", "sub/a.txt", "a.txt", "sub/a.cls", "b.cls"]
    (tmp_path / "sub").mkdir()
    for name in names:
        (tmp_path / name).write_text(name)
    subprocess.run(
        ["tar", way, "x.tar", *[f"./{name}" for name in names]],
        cwd=tmp_path,
        check=True,
        timeout=60,
    )
    result = [*pinfeed.StreamDataset([str(tmp_path / "x.tar")], open_shard=read_tar)]
    assert result == [
        {"name": name, "txt": f"{name}.txt".encode(), "cls": f"{name}.cls".encode()}
        for name in ("b", "a", "sub/a")
    ]


def test_links_and_folders(tmp_path):
    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        for name, kind, target in (
            ("a.txt", tarfile.REGTYPE, ""),
            ("folder", tarfile.DIRTYPE, ""),
            ("a.gone", tarfile.SYMTYPE, "missing.txt"),
            ("a.folder", tarfile.SYMTYPE, "folder"),
            ("a.itself", tarfile.SYMTYPE, "a.itself"),
            ("a.pipe", tarfile.FIFOTYPE, ""),
            ("a.copy", tarfile.SYMTYPE, "a.link"),
            ("a.link", tarfile.SYMTYPE, "a.txt"),
            ("b.gone", tarfile.SYMTYPE, "missing.txt"),
        ):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, target
            member.size = 4 * member.isreg()
            tar.addfile(member, io.BytesIO(b"text"))
    result = [*pinfeed.StreamDataset([str(tmp_path / "x.tar")], open_shard=read_tar)]
    assert result == [{"name": "a", "txt": b"text", "copy": b"text", "link": b"text"}]


def test_a_file_called_name(tmp_path):
    (tmp_path / "a.name").write_text("other")
    (tmp_path / "a.txt").write_text("text")
    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        for name in ("a.name", "a.txt"):
            tar.add(tmp_path / name, name)
    with pytest.raises(ValueError, match=r"x\.tar: rename a\.name; name is a key"):
        list(read_tar(tmp_path / "x.tar"))
