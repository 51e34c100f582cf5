"""Default number of threads on made-up machines."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pydspark.cpu import cpu_quota, default_threads, usable_cpus


def machine(root: Path, siblings: list[str], files: dict[str, str] | None = None) -> Path:
    """A folder with ``proc`` and ``sys``; siblings[i] is the list of CPUs on the core of CPU i."""
    topology = {f"sys/devices/system/cpu/cpu{i}/topology/thread_siblings_list": s for i, s in enumerate(siblings)}
    for name, text in {**topology, **(files or {})}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


FOUR_CORES = ["0,4", "1,5", "2,6", "3,7", "0,4", "1,5", "2,6", "3,7"]


def test_second_threads_of_a_core_do_not_count(tmp_path: Path) -> None:
    assert default_threads(range(8), machine(tmp_path, FOUR_CORES)) == 4


@pytest.mark.parametrize(("allowed", "threads"), [({0}, 1), ({0, 4}, 1), ({0, 1}, 2), ({4, 5, 6}, 3)])
def test_only_cores_that_the_process_may_use_count(tmp_path: Path, allowed: set[int], threads: int) -> None:
    assert default_threads(allowed, machine(tmp_path, FOUR_CORES)) == threads


def test_cpus_count_where_cores_are_unknown(tmp_path: Path) -> None:
    assert default_threads(range(3), tmp_path) == 3


@pytest.mark.parametrize(
    ("quota", "threads"), [("250000 100000", 2), ("50000 100000", 1), ("max 100000", 4), ("900000 100000", 4)]
)
def test_quota_of_cgroup_version_2(tmp_path: Path, quota: str, threads: int) -> None:
    files = {"proc/self/cgroup": "0::/box/inner", "sys/fs/cgroup/box/inner/cpu.max": quota}
    assert default_threads(range(8), machine(tmp_path, FOUR_CORES, files)) == threads


def test_least_quota_of_the_groups_around_counts(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/box/inner",
        "sys/fs/cgroup/box/inner/cpu.max": "300000 100000",
        "sys/fs/cgroup/box/cpu.max": "150000 100000",
        "sys/fs/cgroup/cpu.max": "max 100000",
    }
    assert cpu_quota(machine(tmp_path, [], files)) == 1.5


@pytest.mark.parametrize(("quota", "expected"), [("200000", 2.0), ("-1", None)])
def test_quota_of_cgroup_version_1(tmp_path: Path, quota: str, expected: float | None) -> None:
    files = {
        "proc/self/cgroup": "3:cpuset:/\n2:cpu,cpuacct:/box",
        "sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us": quota,
        "sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_period_us": "100000",
    }
    assert cpu_quota(machine(tmp_path, [], files)) == expected


def test_quota_of_a_container_that_sees_its_group_as_the_top_one(tmp_path: Path) -> None:
    files = {"proc/self/cgroup": "0::/outside/box", "sys/fs/cgroup/cpu.max": "100000 100000"}
    assert cpu_quota(machine(tmp_path, [], files)) == 1.0


def test_second_threads_of_a_core_can_be_used(tmp_path: Path) -> None:
    files = {"proc/self/cgroup": "0::/box", "sys/fs/cgroup/box/cpu.max": "250000 100000"}
    assert usable_cpus(range(8), machine(tmp_path / "free", FOUR_CORES)) == 8
    assert usable_cpus(range(8), machine(tmp_path / "limited", FOUR_CORES, files)) == 2


def test_this_machine() -> None:
    assert 1 <= default_threads() <= usable_cpus()


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system cannot bind a process to CPUs")
def test_process_bound_to_one_cpu() -> None:
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert default_threads() == usable_cpus() == 1
    finally:
        os.sched_setaffinity(0, before)
