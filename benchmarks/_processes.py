"""CPU time and memory of a tree of processes, by kind of process."""

from __future__ import annotations

from collections import defaultdict

import psutil

_PYTHON_KINDS = {
    "omniboxes.master.server": "master",
    "omniboxes.node.server": "node",
    "omniboxes.node.instance_server": "instance",
    "omniboxes": "supervisor",
}


def kind_of(process: psutil.Process) -> str:
    """Name what a process is: a part of Chromium, a driver, a server of ours."""
    arguments = process.cmdline()
    joined = " ".join(arguments)
    for argument in arguments:
        if argument.startswith("--type="):
            return f"chromium {argument.removeprefix('--type=')}"
    for module, kind in _PYTHON_KINDS.items():
        if f"-m {module}" in joined:
            return kind
    if "playwright" in joined and "driver" in joined:
        return "driver"
    if "headless" in joined or "chrom" in joined:
        return "chromium browser"
    return "other"


def tree(pid: int) -> list[psutil.Process]:
    """Return a process and all below it."""
    root = psutil.Process(pid)
    return [root, *root.children(recursive=True)]


def cpu_s(processes: list[psutil.Process]) -> dict[str, float]:
    """Return the CPU seconds used so far, by kind."""
    used: dict[str, float] = defaultdict(float)
    for process in processes:
        try:
            times = process.cpu_times()
            used[kind_of(process)] += times.user + times.system
        except psutil.NoSuchProcess:
            continue
    return used


def pss_mb(processes: list[psutil.Process]) -> dict[str, float]:
    """Return the proportional set size in MB, by kind: shared pages count once in all."""
    used: dict[str, float] = defaultdict(float)
    for process in processes:
        try:
            used[kind_of(process)] += process.memory_full_info().pss / 1e6
        except psutil.NoSuchProcess:
            continue
    return used
