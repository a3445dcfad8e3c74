"""The memory and CPU limits of this process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

# For each version of control groups: the limit and usage files, and the name prefix of sums over all
# subgroups.
_V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_")
_V2 = ("memory.max", "memory.current", "")


def free_memory(proc: str = "/proc", cgroups: str = "/sys/fs/cgroup") -> int | None:
    """Returns the bytes that this process can allocate before it is killed, or None if unknown.

    On Linux, the kernel's available memory including swap, or less if a control group (v1 or v2, or
    one of its parents) allows less; elsewhere the physical memory.
    """
    limits = [*_system(Path(proc))]
    for version, folder in _groups(Path(proc), Path(cgroups), "memory"):
        limits += _group(folder, *(_V1 if version == 1 else _V2))
    return max(0, min(limits)) if limits else None


def cpu_quota(proc: str = "/proc", cgroups: str = "/sys/fs/cgroup") -> float | None:
    """Returns the CPU limit of this process's control group, in CPUs, or None without a limit."""
    quotas = []
    for version, folder in _groups(Path(proc), Path(cgroups), "cpu"):
        try:
            if version == 1:
                parts = [
                    (folder / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period")
                ]
            else:
                parts = (folder / "cpu.max").read_text().split()
            quota, period = map(int, parts)
        except (OSError, ValueError):  # no such group, or "max"
            continue
        if quota > 0:
            quotas.append(quota / period)
    return min(quotas, default=None)


def _system(proc: Path) -> Iterator[int]:
    try:
        lines = (proc / "meminfo").read_text().splitlines()
    except OSError:
        if "SC_PHYS_PAGES" in os.sysconf_names:
            yield os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return
    kilobytes = {name: int(rest.split()[0]) for name, _, rest in (x.partition(":") for x in lines)}
    if "MemAvailable" in kilobytes:
        yield 1024 * (kilobytes["MemAvailable"] + kilobytes.get("SwapFree", 0))


def _groups(proc: Path, mounts: Path, controller: str) -> Iterator[tuple[int, Path]]:
    """Yields version and folder of this process's control group and of its parents."""
    try:
        lines = (proc / "self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        number, controllers, path = line.split(":", 2)
        if number != "0" and controller not in controllers.split(","):
            continue
        version, mount = (2, "") if number == "0" else (1, controller)
        # Inside a container, the path may be the host's, and only the mount itself exists.
        names = [name for name in path.split("/") if name]
        for depth in range(len(names) + 1):
            yield version, mounts.joinpath(mount, *names[:depth])


def _group(folder: Path, limit_file: str, usage_file: str, prefix: str) -> Iterator[int]:
    try:
        limit = (folder / limit_file).read_text().strip()
        usage = int((folder / usage_file).read_text())
        stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):
        return  # no such group, or one without this controller
    if limit == "max":
        return
    # The page cache counts as usage, but is freed when memory is needed.
    cached = sum(int(stat.get(f"{prefix}{kind}_file", 0)) for kind in ("active", "inactive"))
    yield int(limit) - usage + cached
