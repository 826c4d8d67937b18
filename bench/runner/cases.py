"""The cases of a run: those that are asked for, and the ceilings that they need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.device.detect import Device
from bench.runner.ceilings import needed_ceilings
from bench.runner.comparisons import cases_of_suite
from bench.sweep import load as sweep
from bench.sweep.claims import Claim
from bench.sweep.load import Case, Find
from bench.sweep.suites import load_suite


@dataclass(frozen=True)
class ChosenCases:
    """Cases that a run may plan, and what their sweeps say."""

    cases: Sequence[Case] = ()
    sweeps: Mapping[str, Any] = field(default_factory=dict)
    """Sweep -> what it declares (`Sweep.declared`), for the result file."""
    claims: Mapping[str, Sequence[Claim]] = field(default_factory=dict)
    """Sweep -> its claims, from which comparisons follow."""


def chosen_cases(
    suite: str | None, sweeps: Sequence[str], names: Sequence[str], device: Device, find: Find
) -> ChosenCases:
    """The cases of a suite, or those of these sweeps, or of these names, or all; and their ceilings.

    No row can be judged without its roof: there are the ceilings that the cases need, of a suite those among
    its own. UserError.
    """
    if suite is not None:
        of_suite = load_suite(suite, find, device.sm_count)
        paths, loaded, cases = [], of_suite.loaded, cases_of_suite(of_suite, device)
        requested = [case for case in cases if case.sweep not in of_suite.ceilings]
    else:
        paths = [path for name in sweeps for path in sweep.select(name)]
        every = dict.fromkeys([*(paths or sweep.every_sweep()), *sweep.select("ceilings")])
        loaded = sweep.load_all(every, find, device.sm_count)
        cases = [case for each in loaded for case in each.cases]
    declared = {each.name: each.sweep.declared for each in loaded}
    claims = {each.name: each.sweep.claims for each in loaded}
    if suite is None:
        of_paths = {sweep.sweep_name(path) for path in paths}
        requested = sweep.pick(cases, names) or [c for c in cases if c.sweep in of_paths] or cases
    return ChosenCases(with_ceilings(requested, cases, device), declared, claims)


def with_ceilings(requested: Sequence[Case], every: Sequence[Case], device: Device) -> list[Case]:
    """The requested cases, after the ceilings among `every` that they need and those requested themselves."""
    measured = [case for case in requested if case.role == "measurement"]
    own = {case.key: case for case in requested if case.role != "measurement"}
    ceilings = own | {case.key: case for case in every if case.role != "measurement"}
    needed = {case.key: case for case in needed_ceilings(measured, ceilings.values(), device)}
    return [*(needed | own).values(), *measured]
