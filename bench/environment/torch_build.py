"""Choice of the build of torch that this machine's GPU driver can use, before gigabytes are downloaded.

`make setup` runs this in the new environment, which has nothing but pip yet, so only the standard library is
imported. Arguments for pip are printed on standard output, a notice for the user on standard error:

    python -m bench.environment.torch_build    exit code 0, or 2 with one sentence if no build would run here
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from bench.errors import UserError

CONSTRAINTS = Path(__file__).parents[2] / "constraints.txt"
INDEX = "https://download.pytorch.org/whl/"
ASK = ("nvidia-smi", "--query-gpu=driver_version,compute_cap", "--format=csv,noheader")


class Gpu(NamedTuple):
    """A GPU of this machine, as nvidia-smi describes it."""

    driver: int
    """Major number of its driver's release."""
    capability: tuple[int, int]


class Build(NamedTuple):
    """One build of a torch release for Linux, and what it runs on."""

    tag: str
    """Suffix of its version, and name of the index that has it: `cu126` in `2.13.0+cu126`."""
    driver: int
    """The least driver release that runs it, by CUDA's minor version compatibility."""
    oldest: tuple[int, int]
    """The lowest compute capability that it has code for."""
    newest: tuple[int, int]
    """The highest; later ones of the same generation run its code too."""

    def lacks(self, gpus: Sequence[Gpu]) -> str:
        """Why it does not run on these GPUs, as a clause; empty if it does."""
        if old := [gpu.driver for gpu in gpus if gpu.driver < self.driver]:
            return f"needs driver {self.driver} or later; here is {min(old)}"
        if strange := [c for _, c in gpus if not self.oldest <= c < (self.newest[0] + 1, 0)]:
            return f"has no code for compute capability {min(strange)[0]}.{min(strange)[1]}"
        return ""


BUILDS = {
    "2.13.0": (
        Build("cu130", 580, oldest=(7, 5), newest=(12, 0)),
        Build("cu126", 525, oldest=(5, 0), newest=(9, 0)),
    ),
}
"""torch release -> its builds, that of PyPI first.

Architectures: the matrix of supported CUDA versions in pytorch's RELEASE.md (for 2.13: 12.6 from Maxwell to
Hopper, 13.0 from Turing to Blackwell). Least drivers: table 1 of
https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html (13.x: 580, 12.x: 525).
"""


def gpus_here() -> list[Gpu]:
    """The GPUs that nvidia-smi lists; none without it, or if it fails: the CPU is then measured."""
    try:
        listed = subprocess.run(ASK, capture_output=True, text=True, timeout=120).stdout
    except (OSError, subprocess.TimeoutExpired):
        return []
    found = re.findall(r"^(\d+)[\d.]*, (\d+)\.(\d+)$", listed, re.MULTILINE)
    return [Gpu(int(driver), (int(major), int(minor))) for driver, major, minor in found]


def offered(tag: str) -> str:
    """The torch versions for this Python in the index of this tag, as pip lists them; empty if it is silent.

    An empty tag is whatever index pip is configured to use.
    """
    words = [sys.executable, "-m", "pip", "--retries", "0", "index", "versions", "torch"]
    words += ["--index-url", f"{INDEX}{tag}"] if tag else []
    try:
        return subprocess.run(words, capture_output=True, text=True, timeout=120).stdout
    except subprocess.TimeoutExpired:
        return ""


def pip_words(
    release: str, gpus: Sequence[Gpu], look: Callable[[str], str] = offered
) -> tuple[list[str], str]:
    """The arguments for pip, and a notice for the user, empty if PyPI's build is installed as is.

    With a GPU they include the package that calls cuBLASLt (extra `cublaslt`). UserError if no torch would
    run here.
    """
    if not gpus:
        return _for_cpu(release, look)
    words = [".[dev,cublaslt]"]
    usual, *others = BUILDS[release]
    if not (lacks := usual.lacks(gpus)):
        return words, ""
    build = next((other for other in others if not other.lacks(gpus)), None)
    if build is None:
        raise UserError(
            f"torch {release} from PyPI {lacks}, and no other build does. Update the driver, or use a Python "
            "that has a torch of its own: make bench PYTHON_AS_IS=/usr/bin/python3"
        )
    index = f"{INDEX}{build.tag}"
    notice = f"torch {release} from PyPI {lacks}. Instead {release}+{build.tag} is installed, from {index}"
    return [*words, "--extra-index-url", index], notice


def _for_cpu(release: str, look: Callable[[str], str]) -> tuple[list[str], str]:
    """The same without a GPU: the build without CUDA wherever an index has it."""
    words, wheel = [".[dev]"], f"{release}+cpu"
    if sys.platform != "linux":  # elsewhere PyPI's own build has no CUDA
        return words, ""
    for tag in ("", "cpu"):
        if re.search(rf"\b{re.escape(wheel)}(?![\w.])", look(tag)):  # pip prefers it to PyPI's build
            index = ["--extra-index-url", f"{INDEX}{tag}"] if tag else []
            notice = f"nvidia-smi lists no GPU: torch {wheel}, which has no CUDA, is installed."
            return [*words, *index], notice
    return words, (
        f"nvidia-smi lists no GPU, but neither pip's own index nor {INDEX}cpu offers torch {wheel} for this "
        "Python: PyPI's build is installed, with gigabytes of CUDA libraries that stay unused."
    )


def pinned() -> str:
    """The torch release that constraints.txt asks for."""
    pin = re.search(r"^torch==(\S+)$", CONSTRAINTS.read_text(), re.MULTILINE)
    assert pin is not None, f"{CONSTRAINTS} pins no torch"
    return pin[1]


if __name__ == "__main__":
    try:
        words, notice = pip_words(pinned(), gpus_here())
    except UserError as reason:
        print(f"error: {reason}", file=sys.stderr)
        raise SystemExit(2) from None
    if notice:
        print(notice, file=sys.stderr)
    print(*words)
