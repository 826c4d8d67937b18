"""Control groups of this process (Linux cgroups, version 2 and 1): their limits, and what is left of them.

A group's limits hold for all groups below it, so the least along the path from the process's own group to the
root counts (Documentation/admin-guide/cgroup-v2.rst: cpu.max, memory.max, memory.current).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/")


def control_groups(controller: str, root: Path = ROOT) -> Iterator[Path]:
    """Folders of the control groups that this process is in: version 2, then the controller's of version 1.

    Of each version the process's own comes first, then those that contain it, as far as they can be seen from
    here: a container may see no more than its own, at the top. They lie where systemd and containers mount
    them. `controller` is cpu or memory; `root` is where proc and sys are.
    """
    for line in sorted(text_of(root / "proc/self/cgroup").splitlines()):
        number, controllers, path = (*line.split(":", 2), "", "")[:3]  # `0::/path`, `4:cpu,cpuacct:/path`
        mounts = [controller] * (controller in controllers.split(","))
        # A path upwards is outside of this process's namespace.
        below = Path() if "/.." in path else Path(path.lstrip("/"))
        for mount in ("unified", "") if number == "0" else mounts:
            folders = (root / "sys/fs/cgroup" / mount / part for part in (below, *below.parents))
            yield from filter(Path.is_dir, folders)


def cpu_quota(root: Path = ROOT) -> float | None:
    """Processors whose time this process may use; None without a quota."""
    quotas = []
    for group in control_groups("cpu", root):
        quota, _, period = text_of(group / "cpu.max").partition(" ")
        quota = quota or text_of(group / "cpu.cfs_quota_us")
        period = period or text_of(group / "cpu.cfs_period_us")
        if quota.isdigit() and period.isdigit():  # else `max`, or -1: no quota here
            quotas.append(int(quota) / int(period))
    return min(quotas, default=None)


def memory_limit_byte(root: Path = ROOT) -> int | None:
    """Bytes of memory that this process and its neighbours in a control group may use; None without limit."""
    return min((limit for limit, _ in _memory(root)), default=None)


def available_byte(root: Path = ROOT) -> int:
    """Bytes of memory that can still be allocated: the least that the kernel or a control group has left."""
    lines = (root / "proc/meminfo").read_text().splitlines()
    available = next(line for line in lines if line.startswith("MemAvailable"))
    left = [limit - used for limit, used in _memory(root) if used is not None]
    return max(0, min([int(available.split()[1]) * 1024, *left]))


def _memory(root: Path) -> Iterator[tuple[int, int | None]]:
    """(limit, use or None where that is not known), bytes, of every control group with a limit."""
    for group in control_groups("memory", root):
        limit = text_of(group / "memory.max") or text_of(group / "memory.limit_in_bytes")
        used = text_of(group / "memory.current") or text_of(group / "memory.usage_in_bytes")
        if limit.isdigit():
            yield int(limit), int(used) if used.isdigit() else None


def text_of(path: Path) -> str:
    """The text of a file of proc or sys, stripped; empty if it cannot be read."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
