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

    Of each version the process's own comes first, then those that contain it. `controller` is cpu or memory;
    `root` is where proc and sys are.
    """
    mounts = _mounts(controller, root)
    for kind in ("cgroup2", "cgroup"):
        if kind not in mounts or (path := _own_path(controller, kind, root)) is None:
            continue
        shown, mount = mounts[kind]
        # In a container the mount may show only a part of the tree, while the path is given from the top.
        below = path.relative_to(shown) if path.is_relative_to(shown) else Path()
        if ".." in below.parts:  # outside of this process's cgroup namespace, so not to be seen from here
            below = Path()
        for part in (below, *below.parents):
            yield root / mount.relative_to("/") / part


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


def _mounts(controller: str, root: Path) -> dict[str, tuple[Path, Path]]:
    """cgroup2 | cgroup (version 1, the controller's) -> (what part of its tree is mounted, where)."""
    mounts: dict[str, tuple[Path, Path]] = {}
    for line in text_of(root / "proc/self/mountinfo").splitlines():
        place, _, kind = line.partition(" - ")
        fields, types = place.split(), kind.split()
        if len(fields) < 5 or not types or types[0] not in ("cgroup2", "cgroup"):
            continue
        if types[0] == "cgroup2" or controller in types[-1].split(","):
            mounts.setdefault(types[0], (Path(fields[3]), Path(fields[4])))
    return mounts


def _own_path(controller: str, kind: str, root: Path) -> Path | None:
    """This process's control group: `0::/path` in version 2, `4:cpu,cpuacct:/path` in version 1."""
    for line in text_of(root / "proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        is_unified = number == "0" and not controllers
        if is_unified if kind == "cgroup2" else controller in controllers.split(","):
            return Path(path)
    return None


def text_of(path: Path) -> str:
    """The text of a file of proc or sys, stripped; empty if it cannot be read."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
