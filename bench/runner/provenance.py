"""Where a row comes from: the commit of the code, the unit that was measured, the job and the user's tags."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

from bench.device.detect import Device
from bench.errors import UserError
from bench.git import GitError, git
from bench.store.schema import JOB_IDS

ROOT = Path(__file__).parents[2]
DECISIVE = ("bench", "kernels", "sweeps")
"""Folders that decide what is timed and how: a new file there counts before git tracks it, if not ignored."""
STATED = "ROOFBENCH_COMMIT"
"""Environment variable that names the commit of a copy without .git; `+` behind it if files differ."""
ARCHIVED = "$Format:%H$"
"""The commit, where `git archive` has put it in (.gitattributes)."""
UNIT = ("host", "pci_bus", "gpu_uuid", "serial")
"""Columns that name the machine and its device."""


def commit() -> tuple[str, str]:
    """(commit of the checkout, `+` behind it if files differ or DECISIVE has new ones; why it is unknown).

    One of the two is empty. Git is asked first. A copy without .git may lie in somebody else's repository,
    whose commit is not ours. UserError if STATED decides and is no commit.
    """
    if not (ROOT / ".git").exists():
        return _stated_commit(f"{ROOT} is a copy without .git")
    commands = (
        ("describe", "--always", "--dirty=+", "--exclude=*", "--abbrev=12"),
        ("ls-files", "--others", "--exclude-standard", "--", *DECISIVE),  # `--dirty` sees tracked files only
    )
    try:
        described, untracked = (git(ROOT, *words, timeout_s=10) for words in commands)
    except GitError as error:
        return _stated_commit(str(error))
    name = described.decode().strip()
    return (f"{name.removesuffix('+')}+" if untracked else name), ""


def _stated_commit(reason: str) -> tuple[str, str]:
    given = os.environ.get(STATED, "")
    commit = re.fullmatch("([0-9a-f]{7,40})([+]?)", given or ARCHIVED)
    if given and not commit:
        raise UserError(f"{STATED}={given!r}: give 7 to 40 hexadecimal digits, and + if files differ")
    return (commit[1][:12] + commit[2], "") if commit else ("", f"{reason}; {STATED} may state it")


def origin(device: Device, tags: Mapping[str, str]) -> dict[str, str | None]:
    """The columns that say on which unit and for which job a run was made; null if unknown."""
    unit = zip(UNIT, (device.host, device.pci_bus, device.uuid, device.serial), strict=True)
    job = next((f"{name}={os.environ[name]}" for name in JOB_IDS if os.environ.get(name)), None)
    columns = {name: value or None for name, value in unit}
    return columns | {"job_id": job, "tags": json.dumps(dict(tags), sort_keys=True) if tags else None}
