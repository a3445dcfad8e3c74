"""Reads the samples of WebDataset's .tar files."""

import tarfile
from pathlib import Path, PurePosixPath

import pinfeed


def read_tar(path):
    """Yields a sample for each group of files that share a name.

    Links are followed. Folders and broken links are skipped.
    """
    samples = {}
    with tarfile.open(path) as tar:
        for member in tar:
            file = PurePosixPath(member.name)  # ./a.txt is a.txt
            stem, _, ending = file.name.partition(".")
            if stem and ending:  # no README, .DS_Store
                samples.setdefault(str(file.parent / stem), {})[ending] = member
        for name, files in samples.items():
            contents = {
                ending: file.read()
                for ending, member in files.items()
                if (file := open_member(tar, member))
            }
            if "name" in contents:
                raise ValueError(f"{path}: rename {name}.name; name is a key")
            if contents:
                yield {"name": name} | contents


def open_member(tar, member):
    """Returns the file, or None for a folder or a broken link."""
    try:
        return tar.extractfile(member)
    except (KeyError, RecursionError):  # a link to no member, or to itself
        return None


if __name__ == "__main__":
    with tarfile.open("photos-0.tar", "w") as tar:
        for name in ("a.txt", "a.cls", "b.txt", "b.cls"):
            Path(name).write_text(f"the file {name}")
            tar.add(name)
    photos = pinfeed.StreamDataset(["photos-0.tar"], open_shard=read_tar)
    print(list(photos)[1])
    # {'name': 'b', 'txt': b'the file b.txt', 'cls': b'the file b.cls'}
