"""The file of a custom kernel, loaded with its own imports: packages of its own come before ours.

Ours are called `kernels`, `bench` and so on, and so may a folder beside the file be, or a package that is
installed (Hugging Face's `kernels`). While the file is loaded, those are what it imports.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]
OURS = ("bench", "fleet", "kernels", "plots", "studies", "tests")
FILES: set[str] = set()
"""Every file that was begun to be loaded."""
_FOLDERS: list[str] = []
"""Their folders, and what holds the packages that these are."""


@cache
def loaded(path: str) -> tuple[ModuleType, str]:
    """(the file as a module, a hash of the text that was run). Never from a cache of compiled files."""
    text = Path(path).read_bytes()
    digest = hashlib.sha256(text).hexdigest()[:16]
    root, package = _package(Path(path).parent)

    def run() -> ModuleType:
        module = ModuleType(f"{Path(path).stem}_{digest}")
        module.__file__, module.__package__ = path, package
        sys.modules[module.__name__] = module  # whoever asks for the source of its functions looks here
        exec(compile(text, path, "exec"), module.__dict__)
        return module

    FILES.add(path)
    beside = list(dict.fromkeys((str(Path(path).parent), str(root))))
    _FOLDERS.extend(beside)
    sys.path.extend(beside)  # behind our packages, for what its functions import when they are called
    try:
        with _in_front(beside):
            return run(), digest
    except ImportError as error:
        try:
            return run(), digest  # it meant ours, as the file to begin with does
        except ImportError:
            raise error from None


def _package(folder: Path) -> tuple[Path, str]:
    """(what holds the outermost package of this folder, the folder's name as a package, empty if it is none).

    Relative imports need it. A folder is a package if it has an __init__.py.
    """
    names: list[str] = []
    while (folder / "__init__.py").exists():
        names.insert(0, folder.name)
        folder = folder.parent
    return folder, ".".join(names)


@contextmanager
def _in_front(beside: Sequence[str]) -> Iterator[None]:
    """Meanwhile these folders, then what is installed, come before ours and before imports of other kernels.

    Afterwards ours are back; modules of theirs that have a name of their own stay.
    """
    path = sys.path.copy()
    installed = [each for each in path if not _is_checkout(Path(each or ".")) and each not in _FOLDERS]
    of_others = [name for name, module in sys.modules.items() if "." not in name and _is_of_a_kernel(module)]
    ahead = {name for name in OURS if _is_theirs(name, [*beside, *installed])}
    ahead |= {name for name in of_others if _is_theirs(name, beside)}

    def named() -> list[str]:
        return [name for name in sys.modules if name.partition(".")[0] in ahead]

    aside = {name: sys.modules.pop(name) for name in named()}
    sys.path[:] = [*beside, *installed, str(ROOT)]
    try:
        yield
    finally:
        sys.path[:] = path
        for name in set(named()) & aside.keys():
            del sys.modules[name]
        sys.modules.update(aside)


def _is_theirs(name: str, path: Sequence[str]) -> bool:
    """Whether a package or module of this name is found there that is none of ours."""
    spec = PathFinder.find_spec(name, path)
    places = [] if spec is None else [spec.origin, *(spec.submodule_search_locations or ())]
    return any(place and not any(map(_is_checkout, Path(place).parents[:2])) for place in places)


def _is_checkout(folder: Path) -> bool:
    return (folder / "bench" / "spec.py").exists()


def _is_of_a_kernel(module: ModuleType) -> bool:
    """Whether it lies beside the file of a kernel, or is a package there."""
    places = Path(getattr(module, "__file__", None) or "/").parents[:2]
    return any(str(place) in _FOLDERS for place in places)
