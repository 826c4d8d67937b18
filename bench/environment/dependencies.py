"""Packages that this project needs, and which of them are missing, checked before anything imports them.

The list is pyproject.toml's. The project runs from its checkout without being installed, so there is no
metadata of its own to read. Only the standard library is imported here: whatever else is missing, this works.

    python -m bench.environment.dependencies [EXTRA...]

Exit code 0, or 2 with a sentence that names all that is missing. Without an extra: what measuring needs.
"""

from __future__ import annotations

import os
import platform
import re
import shlex
import sys
import tomllib
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from bench.errors import UserError

ROOT = Path(__file__).parents[2]

IMPORT_NAMES = {
    "nvidia-ml-py": "pynvml",
    "nvmath-python": "nvmath",
    "pytest-xdist": "xdist",
    "PyYAML": "yaml",
    "scikit-learn": "sklearn",
}
"""Distribution -> the package it is imported as, where more than dashes differ."""
NOT_IMPORTED = ("aiconfigurator-core", "pandas-stubs", "scipy-stubs", "types-", "zizmor")
"""Distributions (or beginnings of their names) that nothing imports: metadata says if they are installed."""
RUNNING = ("nvidia-ml-py", "pytest", "pytest-benchmark", "torch", "triton")
"""Needed only where something runs: reading, comparing and drawing results needs none of them."""
AFTERWARDS = ("matplotlib",)
"""Needed only to draw: measuring, checking and comparing needs none of them, nor any extra."""
EVERYTHING = "all"
"""The extra that has all that only pages, predicting, importing or nights need."""

_REQUIREMENT = re.compile(
    r"(?P<name>[A-Za-z0-9._-]+)(\[(?P<extras>[a-z,]+)\])?(?P<version>[<>=!~][^;]*)?"
    r"(; *platform_system == '(?P<system>\w+)')?"
)


@dataclass(frozen=True)
class Requirement:
    """One line of a list of dependencies."""

    name: str
    """Name of the distribution, as pip knows it."""
    version: str
    """Constraint on the version, `>=2.7`; empty if there is none."""

    def __str__(self) -> str:
        return f"{self.name}{self.version}"

    @property
    def import_name(self) -> str:
        """The package that it is imported as."""
        return IMPORT_NAMES.get(self.name, self.name.replace("-", "_"))

    @property
    def is_there(self) -> bool:
        """Whether this interpreter finds it, without importing it."""
        if self.name.startswith(NOT_IMPORTED):
            return version(self.name) is not None
        try:
            spec = find_spec(self.import_name)
        except (ImportError, ValueError):  # a finder that refuses, a module without a spec
            return False
        return spec is not None and spec.origin is not None  # a bare folder of that name is no package

    @property
    def lack(self) -> str:
        """The requirement, with the version that is here if it is too old."""
        return f"{self} (here is {self.too_old})" if self.too_old else str(self)

    @property
    def too_old(self) -> str:
        """The installed version, if its metadata says that it is below the least allowed; else empty."""
        least, there = re.match(r">=([\d.]+)", self.version), version(self.name)
        if least is None or there is None or _numbers(there) >= _numbers(least[1]):
            return ""
        return there


def required(extras: Collection[str] = ()) -> Iterator[Requirement]:
    """What the project needs on this system, with these of its extras.

    KeyError for an unknown extra, ValueError for a line of unknown form.
    """
    pyproject = ROOT / "pyproject.toml"
    project = tomllib.loads(pyproject.read_text())["project"]
    lines = list(project["dependencies"])
    for extra in extras:
        lines += project["optional-dependencies"][extra]
    for line in lines:  # an extra that names others lengthens the list
        parts = _REQUIREMENT.fullmatch(line)
        if parts is None:
            raise ValueError(f"{pyproject}: {line!r} is not understood by {Path(__file__).name}")
        if parts["extras"]:
            for extra in parts["extras"].split(","):
                lines += project["optional-dependencies"][extra]
        elif parts["system"] in (None, platform.system()):
            yield Requirement(parts["name"], (parts["version"] or "").strip())


def missing(extras: Collection[str] = (), without: Collection[str] = ()) -> list[Requirement]:
    """The requirements that are not installed or too old, but for the distributions in `without`."""
    return [
        requirement
        for requirement in dict.fromkeys(required(extras))  # several extras may name one
        if requirement.name not in without and (not requirement.is_there or requirement.too_old)
    ]


def sentence(lacking: Sequence[Requirement]) -> str:
    """What is missing, for which interpreter, and the command that installs it; empty if nothing is."""
    if not lacking:
        return ""
    names = ", ".join(requirement.lack for requirement in lacking)
    these = "this Python package is" if len(lacking) == 1 else "these Python packages are"
    return f"{these} missing: {names}; install with: {pip_install(map(str, lacking))}"


def pip_install(requirements: Iterable[str]) -> str:
    """The command that installs these for this interpreter, in the versions that were tested."""
    words = [sys.executable, "-m", "pip", "install", "-c", str(ROOT / "constraints.txt"), *requirements]
    return shlex.join(words)


def demand(by: str, *names: str) -> None:
    """UserError if any of these distributions is missing; `by` is the command that uses them, or its part."""
    lacking = [each for each in missing((EVERYTHING,)) if each.name in names]
    if lacking:
        raise UserError(f"{by}: {sentence(lacking)}")


def refuse_if_missing(extras: Collection[str] = (), without: Collection[str] = ()) -> None:
    """End this process with one sentence on standard error and exit code 2, if anything is missing."""
    if lacking := sentence(missing(extras, without)):
        print(f"error: {lacking}", file=sys.stderr)
        raise SystemExit(2)


def child_environment() -> dict[str, str]:
    """The environment for a child Python process: it imports from this checkout and wherever this one does.

    The whole search path is passed on, as torch does for its own compiling processes: parts of it may have
    been added while this process ran. The checkout comes first, so that its `kernels` is imported.
    """
    # An empty entry, and a relative one, mean the folder that this process is in.
    paths = [str(ROOT), *(os.path.abspath(path) for path in sys.path)]
    return os.environ | {"PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))}


def version(name: str) -> str | None:
    """Version of the distribution of this name by its metadata; None if it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _numbers(version: str) -> tuple[int, ...]:
    """`2.13.0+cpu` -> (2, 13, 0): the leading numbers."""
    leading = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, leading[0].split("."))) if leading else ()


if __name__ == "__main__":
    refuse_if_missing(sys.argv[1:], () if sys.argv[1:] else AFTERWARDS)
