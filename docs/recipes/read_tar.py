"""Reads the samples of WebDataset's .tar files."""

import tarfile
from pathlib import Path, PurePosixPath

import pinfeed


def read_tar(path):
    """Yields a sample for each group of files that share a name."""
    samples = {}
    with tarfile.open(path) as tar:
        for member in tar:
            file = PurePosixPath(member.name)  # ./a.txt is a.txt
            stem, _, ending = file.name.partition(".")
            is_file = member.isreg() or member.islnk() or member.issym()
            if is_file and stem and ending:  # no folders, README, .DS_Store
                samples.setdefault(str(file.parent / stem), {})[ending] = member
        for name, files in samples.items():
            contents = {
                ending: tar.extractfile(file).read()
                for ending, file in files.items()
            }
            yield {"name": name} | contents


if __name__ == "__main__":
    with tarfile.open("photos-0.tar", "w") as tar:
        for name in ("a.txt", "a.cls", "b.txt", "b.cls"):
            Path(name).write_text(f"the file {name}")
            tar.add(name)
    photos = pinfeed.StreamDataset(["photos-0.tar"], open_shard=read_tar)
    print(list(photos)[1])
    # {'name': 'b', 'txt': b'the file b.txt', 'cls': b'the file b.cls'}
