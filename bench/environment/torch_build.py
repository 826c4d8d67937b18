"""Choice of the build of torch that this machine's GPU driver can use, before gigabytes are downloaded.

`make setup` runs this in the new environment, which has nothing but pip yet, so only the standard library is
imported. Arguments for pip are printed on standard output, a notice for the user on standard error:

    python -m bench.environment.torch_build    exit code 0, or 2 with one sentence if no build would run here
"""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.errors import UserError

CONSTRAINTS = Path(__file__).parents[2] / "constraints.txt"
INDEX = "https://download.pytorch.org/whl/"
MAJOR, MINOR = 75, 76
"""CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR of cuda.h."""


@dataclass(frozen=True)
class Build:
    """One build of a torch release for Linux, and what it runs on."""

    tag: str
    """Suffix of its version, and name of the index that has it: `cu126` in `2.13.0+cu126`."""
    cuda: tuple[int, int]
    """The least CUDA version that the driver must support: that of minor version compatibility."""
    driver: int
    """The driver release with which that version came."""
    oldest: tuple[int, int]
    """The lowest compute capability that it has code for."""
    newest: tuple[int, int]
    """The highest; later ones of the same generation run its code too."""

    def runs_on(self, machine: DriverReport) -> bool:
        """Whether the driver loads it, and it has code for every GPU."""
        return machine.cuda >= self.cuda and all(
            self.oldest <= gpu and gpu[0] <= self.newest[0] for gpu in machine.capabilities
        )


BUILDS = {
    "2.13.0": (
        Build("cu130", (13, 0), 580, oldest=(7, 5), newest=(12, 0)),
        Build("cu126", (12, 0), 525, oldest=(5, 0), newest=(9, 0)),
    ),
}
"""torch release -> its builds, that of PyPI first.

CUDA versions and architectures: the matrix of supported CUDA versions in pytorch's RELEASE.md (for 2.13: 12.6
from Maxwell to Hopper, 13.0 from Turing to Blackwell). Least drivers: table 1 of
https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html (13.x: 580, 12.x: 525).
"""


@dataclass(frozen=True)
class DriverReport:
    """What the CUDA driver reports of itself and of its GPUs."""

    cuda: tuple[int, int]
    """The newest CUDA version that it supports."""
    capabilities: tuple[tuple[int, int], ...]
    """Compute capability of each GPU."""


def machine(libcuda: str = "libcuda.so.1") -> DriverReport | None:
    """This machine's driver and GPUs; None without a CUDA driver, or if it has no GPU or fails.

    The CPU is then measured.
    """
    try:
        driver = ctypes.CDLL(libcuda)
    except OSError:
        return None
    version, count = ctypes.c_int(), ctypes.c_int()
    if driver.cuDriverGetVersion(ctypes.byref(version)) or driver.cuInit(0):
        return None
    if driver.cuDeviceGetCount(ctypes.byref(count)) or not count.value:
        return None

    def attribute(number: int, index: int) -> int:
        value = ctypes.c_int()
        driver.cuDeviceGetAttribute(ctypes.byref(value), number, index)
        return value.value

    gpus = range(count.value)  # a CUdevice is its ordinal number
    cuda = (version.value // 1000, version.value % 1000 // 10)
    return DriverReport(cuda, tuple((attribute(MAJOR, gpu), attribute(MINOR, gpu)) for gpu in gpus))


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


def chosen(release: str, here: DriverReport, look: Callable[[str], str] = offered) -> Build:
    """The newest build of this release that runs here and is offered. UserError if there is none."""
    usual, *others = BUILDS[release]
    if usual.runs_on(here):
        return usual
    for build in others:
        if build.runs_on(here) and re.search(rf"\b{re.escape(release)}\+{build.tag}\b", look(build.tag)):
            return build
    fitting = [build.tag for build in others if build.runs_on(here)]
    had = (
        f"{INDEX}{fitting[0]} does not offer {release}+{fitting[0]} here"
        if fitting
        else "no other build does"
    )
    raise UserError(
        f"{_unfit(release, usual, here)}, and {had}. Update the driver, or use a Python that has a torch of "
        "its own: make bench PYTHON_AS_IS=/usr/bin/python3"
    )


def _unfit(release: str, build: Build, here: DriverReport) -> str:
    """Why PyPI's build does not run here, as a clause."""
    built = f"torch {release} from PyPI is built for CUDA {build.cuda[0]}.{build.cuda[1]}"
    if here.cuda < build.cuda:
        return (
            f"{built} and needs driver {build.driver} or later; the driver here supports "
            f"CUDA {here.cuda[0]}.{here.cuda[1]} at most"
        )
    lacking = ", ".join(f"{a}.{b}" for a, b in sorted(set(here.capabilities)))
    return f"{built} and has no code for compute capability {lacking}"


def pip_words(
    release: str, here: DriverReport | None, look: Callable[[str], str] = offered
) -> tuple[list[str], str]:
    """The arguments for pip, and a notice for the user, empty if PyPI's build is installed as is.

    With a GPU they include the package that calls cuBLASLt (extra `cublaslt`). UserError if no torch would
    run here.
    """
    if here is None:
        return _for_cpu(release, look)
    words, notice = [".[dev,cublaslt]"], ""
    build = chosen(release, here, look)
    usual = BUILDS[release][0]
    if build is not usual:
        index = f"{INDEX}{build.tag}"
        words += ["--extra-index-url", index]
        notice = f"{_unfit(release, usual, here)}. Instead {release}+{build.tag} is installed, from {index}"
    return words, notice


def _for_cpu(release: str, look: Callable[[str], str]) -> tuple[list[str], str]:
    """The same without a GPU: the build without CUDA wherever an index has it."""
    words, wheel = [".[dev]"], f"{release}+cpu"
    if sys.platform != "linux":  # elsewhere PyPI's own build has no CUDA
        return words, ""
    for tag in ("", "cpu"):
        if re.search(rf"\b{re.escape(wheel)}(?![\w.])", look(tag)):  # pip prefers it to PyPI's build
            index = ["--extra-index-url", f"{INDEX}{tag}"] if tag else []
            return [*words, *index], f"No CUDA GPU here: torch {wheel} is installed, which has no CUDA."
    python = ".".join(map(str, sys.version_info[:2]))
    return words, (
        f"No CUDA GPU here, but neither pip's own index nor {INDEX}cpu offers torch {wheel} for "
        f"Python {python}: PyPI's build is installed, with gigabytes of CUDA libraries that stay unused."
    )


def pinned() -> str:
    """The torch release that constraints.txt asks for."""
    pin = re.search(r"^torch==(\S+)$", CONSTRAINTS.read_text(), re.MULTILINE)
    assert pin is not None, f"{CONSTRAINTS} pins no torch"
    return pin[1]


if __name__ == "__main__":
    try:
        words, notice = pip_words(pinned(), machine())
    except UserError as reason:
        print(f"error: {reason}", file=sys.stderr)
        raise SystemExit(2) from None
    if notice:
        print(notice, file=sys.stderr)
    print(*words)
