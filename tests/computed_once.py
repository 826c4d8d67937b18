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
from bench.model.roofline import Floats
from bench.model.tile_wave import Machine, Products
from bench.sweep import load


@contextmanager
def computed_once() -> Iterator[None]:
    """Once for each argument sweeps are read, machines and forests fitted, and the command line is made."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(load, "load", _loading(load.load))
        patch.setattr(calibration, "fit", _fitting(calibration.fit))
        patch.setattr(pooled, "grown", _growing(pooled.grown))
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


def _fitting(really: Callable[[Machine, Products, Floats], Machine]) -> Callable[..., Machine]:
    known: dict[tuple[object, ...], Machine] = {}

    def fitted(start: Machine, shapes: Products, seconds: Floats) -> Machine:
        asked = start, *(part.tobytes() for part in (*shapes, seconds))
        if asked not in known:
            known[asked] = really(start, shapes, seconds)
        return known[asked]

    return fitted


def _growing(really: Callable[..., object]) -> Callable[..., object]:
    known: dict[tuple[object, ...], object] = {}

    def grown(*arguments: object) -> object:
        asked = tuple(
            (each.tobytes(), each.shape, each.dtype) if isinstance(each, np.ndarray) else each
            for each in arguments
        )
        if asked not in known:
            known[asked] = really(*arguments)
        return known[asked]

    return grown
