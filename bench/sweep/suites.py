"""Suites: named choices among the sweeps, in sweeps/suites.yaml.

    tour:
      title: Ten experiments as whole curves
      budget_s: {cpu: 150, cuda: 170}
      entries:
        - {sweeps: gemm/square, device: {kind: cpu}, where: {dtype: float32}, points: 8}

An entry takes cases of its sweeps: all of them; those that a selection names; so many points of each line; or
those that decide the claims that it names, or `all`. Entries add up, and the ceilings come with them: all, or
those that the suite names (`ceilings: [launch, stream]`) and those that entries take.
`bench.runner.comparisons` makes the choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, Field, model_validator

from bench.errors import UserError, unknown
from bench.spec import DeviceKind
from bench.sweep.checks import check_condition
from bench.sweep.claims import Claim, Devices
from bench.sweep.conditions import Select
from bench.sweep.grammar import validated
from bench.sweep.load import (
    SUITES,
    Find,
    Loaded,
    every_sweep,
    load_all,
    reading,
    select,
    shown_path,
    sweep_name,
)
from bench.sweep.models import List, OneOrList, Strict, Text
from bench.sweep.yaml_nodes import Mistake, Node, Place, shown

ALL = "all"
"""The name that stands for every sweep."""
CEILINGS = "ceilings"
"""The folder of their sweeps."""
TOUR, CORE = "tour", "core"
"""The suites of a run that asks for nothing else, and of a night."""
KNOWN = ("implementation", "cache", "threads_asked", "intensity", "flop", "byte")
"""Columns in addition to the operator's parameters that are known of a case before it is measured."""


class Seconds(Strict):
    """Wall seconds of a run."""

    cpu: float = Field(gt=0)
    """On a CPU."""
    cuda: float = Field(gt=0)
    """On a GPU."""


class Entry(Strict):
    """Cases of some sweeps."""

    sweeps: OneOrList[str]
    """As for --bench-sweep, or all."""
    device: Devices = Devices()
    """The devices that it is for; all if left out."""
    where: Select = Field({})
    """Only cases of which this holds."""
    points: int | None = Field(None, ge=2)
    """So many points of each line, ends included."""
    claims: OneOrList[str] = ()
    """Only cases that decide these claims of the sweeps, or all."""

    @model_validator(mode="after")
    def _narrows_in_one_way(self) -> Entry:
        if self.claims and self.points:
            raise ValueError("claims takes what these need: leave out points")
        return self

    def wants(self, claim: Claim) -> bool:
        """Whether it takes the cases that decide this claim."""
        return ALL in self.claims or claim.id in self.claims


class Suite(Strict):
    """A choice among the sweeps."""

    title: Text
    """What it is for."""
    budget_s: Seconds | None = None
    """Wall time of a run; no limit if left out."""
    ceilings: List[str] | None = None
    """The sweeps of ceilings/ that come along, such as launch; all if left out."""
    entries: List[Entry]
    """What it measures in addition to the ceilings."""

    def limit_s(self, kind: DeviceKind) -> float | None:
        """Wall seconds of a run on this kind of device; None for no limit."""
        return None if self.budget_s is None else float(getattr(self.budget_s, kind))


_OWNERS: dict[str, tuple[str, type[BaseModel]]] = {
    "entries": ("an entry", Entry),
    "budget_s": ("budget_s", Seconds),
    "device": ("device", Devices),
}


class Taken(NamedTuple):
    """An entry with the names of its sweeps."""

    entry: Entry
    sweeps: frozenset[str]
    place: str
    """File and line, for a refusal."""


class LoadedSuite(NamedTuple):
    """A suite, and every sweep that it names, ceilings first."""

    suite: Suite
    taken: list[Taken]
    loaded: list[Loaded]
    ceilings: frozenset[str]
    """The sweeps that come along whole, whatever the entries take."""


def suites(path: Path = SUITES) -> dict[str, Suite]:
    """Every suite of a file, by name, in its order. UserError names the file and the line."""
    with reading(path, shown_path(path)) as file:
        return _suites(file)


def load_suite(name: str, find: Find, sm_count: int, path: Path = SUITES) -> LoadedSuite:
    """A suite with its sweeps for a device of `sm_count` SMs. UserError names the file and the line."""
    with reading(path, shown_path(path)) as file:
        there = _suites(file)
        if name not in there:
            raise UserError(f"--bench-suite: {unknown('suite', name, shown_path(path), there)}")
        suite = there[name]
        named = [CEILINGS] if suite.ceilings is None else [f"{CEILINGS}/{each}" for each in suite.ceilings]
        paths = _paths(named, (name, "ceilings"))
        taken, ceilings = [], frozenset(paths)
        for number, entry in enumerate(suite.entries):
            at = (name, "entries", number)
            mine = _paths(entry.sweeps, (*at, "sweeps"))
            paths |= mine
            taken.append(Taken(entry, frozenset(mine), f"{shown_path(path)}:{file.line_of(at)}"))
        loaded = load_all(paths.values(), find, sm_count)
        for number, (entry, names, _) in enumerate(taken):
            at = (name, "entries", number)
            of_sweeps = [each for each in loaded if each.name in names]
            for each in of_sweeps:
                for column, value in entry.where.items():
                    kind = find(each.sweep.operator)
                    check_condition(column, value, (*at, "where", column), kind, "an entry", KNOWN)
            _check_claims(entry, (*at, "claims"), of_sweeps)
        return LoadedSuite(suite, taken, loaded, ceilings)


def _suites(file: Node) -> dict[str, Suite]:
    """The suites of a file by name. Raises Mistake."""
    if not file.mapping:
        raise Mistake(file.line, f"suites are a mapping from names to suites, not {shown(file.data())}")
    return {name: _suite(node, name, file) for name, node in file.mapping.items()}


def _suite(node: Node, name: str, file: Node) -> Suite:
    if not node.mapping:
        raise Mistake(node.line, f"a suite is a mapping that begins with `title:`, not {shown(node.data())}")
    return validated(Suite, node.data(), "a suite", _OWNERS, (name,), file.line_of)


def _paths(names: Sequence[str], at: Place) -> dict[str, Path]:
    """Name -> file of each sweep that these names mean."""
    paths: dict[str, Path] = {}
    for number, name in enumerate(names):
        try:
            of_name = every_sweep() if name == ALL else select(name)
        except UserError as error:
            raise Mistake((*at, number), str(error)) from error
        paths |= {sweep_name(each): each for each in of_name}
    return paths


def _check_claims(entry: Entry, at: Place, loaded: Sequence[Loaded]) -> None:
    there = [claim.id for each in loaded for claim in each.sweep.claims]
    for number, claim in enumerate(entry.claims):
        if claim not in (ALL, *there):
            says = unknown("claim", claim, ", ".join(entry.sweeps), [ALL, *there])
            raise Mistake((*at, number), says)
