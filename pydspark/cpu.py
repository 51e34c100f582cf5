"""How many threads this process should compute with."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from pathlib import Path

_ROOT = Path("/")


def default_threads(allowed: Collection[int] | None = None, root: Path = _ROOT) -> int:
    """Physical cores that this process may use, cut down to whole CPUs of its cgroup quota; at least 1.

    More threads than that only wait for each other: a second thread on a core adds nothing to matrix work, and a quota
    stops all threads for the rest of each period once it is spent.

    Args:
        allowed: CPU numbers this process may run on; None = ask the system.
        root: folder that holds ``proc`` and ``sys``.
    """
    cpus = _allowed_cpus() if allowed is None else set(allowed)
    return _within_quota(len({_core_of(cpu, root) for cpu in cpus}), root)


def usable_cpus(allowed: Collection[int] | None = None, root: Path = _ROOT) -> int:
    """CPUs that this process may use, second threads of a core included, cut down to its quota; at least 1.

    The arguments are those of ``default_threads``.
    """
    return _within_quota(len(_allowed_cpus() if allowed is None else set(allowed)), root)


def _within_quota(n_cpus: int, root: Path) -> int:
    quota = cpu_quota(root)
    return max(1, n_cpus if quota is None else min(n_cpus, int(quota)))


def _allowed_cpus() -> set[int]:
    if hasattr(os, "sched_getaffinity"):
        return set(os.sched_getaffinity(0))
    return set(range(os.cpu_count() or 1))


def _core_of(cpu: int, root: Path) -> str:
    """A name that CPUs of one physical core share."""
    siblings = _read(root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
    return siblings or f"cpu{cpu}"


def cpu_quota(root: Path = _ROOT) -> float | None:
    """The least CPU quota of this process's cgroups (version 1 or 2) and of the groups around them, in CPUs."""
    quotas = [quota for folder in _cgroup_folders(root) if (quota := _folder_quota(folder)) is not None]
    return min(quotas, default=None)


def _cgroup_folders(root: Path) -> Iterator[Path]:
    base = root / "sys/fs/cgroup"
    for line in _read(root / "proc/self/cgroup").splitlines():
        number, controllers, path = (line.split(":", 2) + ["", ""])[:3]
        if number == "0" and not controllers:
            mounts = [base, base / "unified"]
        elif "cpu" in controllers.split(","):
            mounts = [base / controllers, base / "cpu"]
        else:
            continue
        for mount in mounts:
            # A container often sees its own group mounted as the top one, under a path that does not exist in it.
            folder = mount / path.strip("/")
            while folder != mount:
                yield folder
                folder = folder.parent
            yield mount


def _folder_quota(folder: Path) -> float | None:
    limit, _, period = _read(folder / "cpu.max").partition(" ")
    if not limit:
        limit, period = _read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")
    if not (limit.isdigit() and period.isdigit() and int(period) > 0):
        return None  # no such file, "max" or -1: no limit
    return int(limit) / int(period)


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
