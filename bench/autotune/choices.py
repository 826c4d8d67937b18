"""What was chosen among configurations, kept as JSON in kernels/tuned: one file for each kind of device.

The file maps a text of versions to questions, and each question to its answer. A choice is used again only
where Triton, its assembler and the sources of the operator's kernels are the same.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

import torch

_ROOT = Path(__file__).parents[2]
TUNED = _ROOT / "kernels" / "tuned"


class Choices:
    """What has been chosen on one device under these versions, in memory and on disk."""

    def __init__(self, folder: Path, device: str, versions: str) -> None:
        """`device` names the file; what other versions chose stays in it, untouched and unused."""
        self.path = folder / f"{re.sub('[^a-z0-9]+', '-', device.lower()).strip('-')}.json"
        self.versions = versions
        self._known: dict[str, dict[str, Any]] = self._read().get(versions, {})

    def get(self, question: str) -> dict[str, Any]:
        """The answer to this question as `put` was given it; empty if there is none."""
        return self._known.get(question, {})

    def put(self, question: str, answer: dict[str, Any]) -> None:
        """Remember and write down; a checkout that cannot be written to remembers for this process alone."""
        self._known[question] = answer
        try:
            self.path.parent.mkdir(exist_ok=True)
            # Of two processes that write at once one is lost, and asked again another day.
            everything = self._read()
            everything.setdefault(self.versions, {})[question] = answer
            part = self.path.with_suffix(f".{os.getpid()}")
            part.write_text(json.dumps(everything, indent=1, sort_keys=True) + "\n", "utf-8")
            part.replace(self.path)
        except OSError:
            return

    def _read(self) -> dict[str, Any]:
        try:
            read = json.loads(self.path.read_text("utf-8"))
        except (OSError, ValueError):  # none yet, or cut short by hand: ask the device
            return {}
        return read if isinstance(read, dict) else {}


@functools.cache
def choices_of(device: int) -> Choices:
    """The choices for this CUDA device."""
    properties = torch.cuda.get_device_properties(device)
    made_by = versions(10 * properties.major + properties.minor)
    return Choices(TUNED, f"{properties.name} {properties.multi_processor_count} SM", made_by)


def versions(architecture: int) -> str:
    """What compiles our kernels: other versions, other choices.

    `architecture`, ten times the compute capability, decides which of its two ptxas Triton takes.
    """
    import triton
    from triton.backends.nvidia.compiler import get_ptxas

    return f"triton {triton.__version__}, ptxas {get_ptxas(architecture).version}"


@functools.cache
def sources(operator: str) -> str:
    """Short hash of the operator's files, of those operators that they name, of kernels/*.py and of here.

    A kernel that was edited has never been tuned; another operator's is the same as before.
    """
    files = {*(_ROOT / "kernels").glob("*.py"), *(_ROOT / "bench" / "autotune").glob("*.py")}
    seen, left = set[str](), {operator}
    while left:
        seen.add(name := left.pop())
        files |= (own := {*(_ROOT / "kernels" / name).glob("*.py")})
        left |= {n for path in own for n in re.findall(r"kernels\.(\w+)", path.read_text("utf-8"))} - seen
    return hashlib.sha256(b"".join(path.read_bytes() for path in sorted(files))).hexdigest()[:8]
