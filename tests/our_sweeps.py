"""What the sweeps of this checkout say, for tests that make rows of them without their cases."""

from __future__ import annotations

from functools import cache
from typing import Any

from bench.judge.frame import DeviceRun
from bench.sweep.grammar import Sweep, contents
from bench.sweep.load import SWEEPS
from bench.sweep.yaml_nodes import tree


def role(sweep: str) -> str:
    """The role of the sweep of this name; measurement of one that has no file."""
    return _sweeps()[sweep].role if sweep in _sweeps() else "measurement"


def declared() -> dict[str, Any]:
    """Sweep -> what result files keep of it."""
    return {name: sweep.declared for name, sweep in _sweeps().items()}


def declared_of(run: DeviceRun) -> dict[str, Any]:
    """The same of the sweeps that a run has rows of, as its own file keeps it."""
    there = {row.sweep for row in run.rows}
    return {name: sweep.declared for name, sweep in _sweeps().items() if name in there}


@cache
def _sweeps() -> dict[str, Sweep]:
    paths = sorted(SWEEPS.glob("*/**/*.yaml"))
    return {
        path.relative_to(SWEEPS).with_suffix("").as_posix(): contents(tree(path.read_bytes()))
        for path in paths
    }
