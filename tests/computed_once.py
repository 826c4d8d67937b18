"""What many tests would compute again, by running commands in their own process: half a minute of CPU.

All of it depends on nothing but its arguments and on files whose bytes are compared. Errors are raised anew.
Tests of these functions import them by name, before, and so call them as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import typer.testing

from bench.model import calibration, pooled
from bench.sweep import load


@contextmanager
def computed_once() -> Iterator[None]:
    """Once for each argument sweeps are read, machines and forests fitted, and the command line is made."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(load, "load", _loading(load.load))
        for module, name in ((calibration, "fit"), (pooled, "grown")):
            patch.setattr(module, name, _remembering(getattr(module, name)))
        patch.setattr(typer.testing, "_get_command", cache(typer.testing._get_command))
        yield


def _loading(really: Callable[..., load.Loaded]) -> Callable[..., load.Loaded]:
    known: dict[tuple[object, ...], load.Loaded] = {}

    def loaded(path: Path, find: load.Find, sm_count: int, root: Path = load.SWEEPS) -> load.Loaded:
        if not path.is_file():
            return really(path, find, sm_count, root)
        asked = path, path.read_bytes(), find, sm_count, root
        if asked not in known:
            known[asked] = really(path, find, sm_count, root)
        sweep, cases = known[asked]
        return load.Loaded(sweep, list(cases))

    return loaded


def _remembering(really: Callable[..., object]) -> Callable[..., object]:
    known: dict[tuple[object, ...], object] = {}

    def once(*arguments: object) -> object:
        asked = tuple(_key(each) for each in arguments)
        if asked not in known:
            known[asked] = really(*arguments)
        return known[asked]

    return once


def _key(argument: object) -> object:
    """What tells an argument from others: of arrays, and of tuples of them, their bytes."""
    if isinstance(argument, np.ndarray):
        return argument.tobytes(), argument.shape, argument.dtype
    return tuple(map(_key, argument)) if isinstance(argument, tuple) else argument
