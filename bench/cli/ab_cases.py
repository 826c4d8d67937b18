"""The cases of `python -m bench ab`: named ones, or those that a change touches."""

from __future__ import annotations

import random
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import NamedTuple

import kernels
from bench.device.detect import Device
from bench.errors import UserError
from bench.runner.ab import SAMPLING_S
from bench.runner.comparisons import CPU_BYTE_PER_S, CPU_FLOP_PER_S, cases_of_suite
from bench.runner.limits import impossible
from bench.sweep import load as sweep
from bench.sweep.load import Case
from bench.sweep.suites import TOUR, load_suite

BENEATH_ALL = ("bench/autotune/", "bench/sampling/", "bench/worker/")
"""Folders on which every time depends."""
LAUNCHES, COMPILED = 10, "inductor"
"""Launches that must have room in a visit on a CPU, and implementations that take seconds to compile."""


class Touched(NamedTuple):
    """What files that differ have a part in."""

    operators: frozenset[str]
    sweeps: frozenset[str]
    tour: bool
    """Whether every time is affected: the cases of the tour then stand for all."""

    def __str__(self) -> str:
        parts = [*sorted(self.operators), *sorted(self.sweeps), *(["how times are taken"] * self.tour)]
        return ", ".join(parts)


def touched(files: Collection[str], root: Path) -> Touched:
    """What these files of the checkout at `root` have a part in; empty, as text too, if no time.

    An operator is touched if a file of its folder is, or if one imports a module that is, however indirectly.
    """
    sources = (root / "kernels").rglob("*.py")
    uses = {_module(path.relative_to(root)): _imports(path.read_text("utf-8")) for path in sources}
    differ = {_module(Path(name)) for name in files if name.startswith("kernels/")}
    while more := {name for name, imports in uses.items() if name not in differ and imports & differ}:
        differ |= more
    there = {sweep.sweep_name(path) for path in sweep.every_sweep()}
    changed = {sweep.sweep_name(root / name, root / "sweeps") for name in files if name.startswith("sweeps/")}
    return Touched(
        frozenset({name.split(".")[1] for name in differ if "." in name} & set(kernels.names())),
        frozenset(there & changed),
        any(name.startswith(BENEATH_ALL) for name in files),
    )


def _module(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def _imports(text: str) -> set[str]:
    """The modules of kernels/, and the names in them, that a module imports."""
    found = re.findall(r"from (kernels[\w.]*) import (\([^)]*\)|[^\n]*)", text)
    names = {f"{module}.{name}" for module, names in found for name in re.findall(r"\w+", names)}
    return names | {module for module, _ in found}


def named(names: Sequence[str], sm_count: int) -> list[Case]:
    """The cases of these sweeps, or of these names, as `_spread` has them. UserError for what is neither."""
    cases: dict[str, Case] = {}
    for name in names:
        try:
            loaded = sweep.load_all(sweep.select(name), kernels.problem, sm_count)
            those = [case for each in loaded for case in each.cases]
        except UserError:
            every = sweep.load_all(sweep.every_sweep(), kernels.problem, sm_count)
            those = sweep.pick((case for each in every for case in each.cases), [name], "ab")
        cases |= {case.key: case for case in those}
    return list(_spread(cases.values()))


def chosen(change: Touched, device: Device, count: int) -> tuple[list[Case], int]:
    """Cases of what a change touches, without ceilings; and how many there are.

    The cases are `count` of those that can run on the device, as `_spread` orders them. On a CPU those with
    long visits are left out: in each round new processes would have to compile them.
    """
    whole: list[Case] = []
    if change.operators or change.sweeps:
        for each in sweep.load_all(sweep.every_sweep(), kernels.problem, device.sm_count):
            if each.sweep.operator in change.operators or each.name in change.sweeps:
                whole += each.cases
    if change.tour:
        of_suite = cases_of_suite(load_suite(TOUR, kernels.problem, device.sm_count), device)
        whole += [case for case in of_suite if case.role == "measurement"]
    whole = list({case.key: case for case in whole}.values())
    able = [case for case in whole if impossible(case, device) is None]
    able = [case for case in able if not has_long_visits(case, device)]
    return list(islice(_spread(able), count)), len(whole)


def has_long_visits(case: Case, device: Device) -> bool:
    """Whether a CPU launches it for long, or compiles it: in each round new processes would have to."""
    launch_s = max(case.problem.flop / CPU_FLOP_PER_S, case.problem.byte / CPU_BYTE_PER_S)
    is_long = launch_s > SAMPLING_S["cpu"] / LAUNCHES or case.implementation.startswith(COMPILED)
    return device.kind == "cpu" and is_long


def _spread(cases: Iterable[Case]) -> Iterator[Case]:
    """Sweeps in turn, of a sweep its lines in turn, of a line its points.

    Lines and points have an order that is drawn, always the same one: a regular one could have one data type.
    """
    lines: dict[str, dict[str, list[Case]]] = {}
    for case in cases:
        lines.setdefault(case.sweep, {}).setdefault(case.series, []).append(case)
    chance = random.Random(0)
    of_sweeps = []
    for of_sweep in lines.values():
        drawn = [chance.sample(line, len(line)) for line in of_sweep.values()]
        chance.shuffle(drawn)
        of_sweeps.append(list(_in_turns(drawn)))
    return _in_turns(of_sweeps)


def _in_turns(queues: Iterable[Sequence[Case]]) -> Iterator[Case]:
    """The cases of all queues, which take turns, so that a cut at the end leaves out each of them evenly."""
    return (case for case in chain.from_iterable(zip_longest(*queues)) if case is not None)
