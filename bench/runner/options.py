"""Options of a run, as texts of the command line and of the environment, and the run that they ask for."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.device.detect import detect, unusable_gpu
from bench.device.other_processes import OtherProcesses
from bench.errors import UserError, unknown
from bench.runner.cases import chosen_cases
from bench.runner.limits import PRECISION
from bench.runner.run import RESULTS, Run
from bench.spec import ASKED_DATA, DeviceKind
from bench.sweep.load import Find
from bench.sweep.suites import Suite, suites

BUDGET_S: Mapping[DeviceKind, float] = {"cpu": 120.0, "cuda": 600.0}
"""Default budget of a run without a suite, wall seconds."""
TAGS = "ROOFBENCH_TAGS"
"""Environment variable of what is said of a run in its rows: `rack=b12,cooling=liquid`."""
CONCURRENT = "ROOFBENCH_CONCURRENT_GPUS"
"""Environment variable by which a launcher says how many GPUs of the machine are timed at the same time."""


@dataclass(frozen=True)
class Options:
    """Options of a run as texts of the command line (--bench-...)."""

    device: str = "auto"
    sweeps: Sequence[str] = ()
    cases: Sequence[str] = ()
    """Names of the only cases to measure, in addition to the ceilings that they need; empty for all."""
    suite: str | None = None
    """Name of the suite; None for whatever `sweeps` and `cases` say."""
    budget: str | None = None
    precision: str | None = None
    """Half-width with which a case has visits enough, `1%`; None for the usual one."""
    data: str = "uniform"
    """Of what the inputs are: one of ASKED_DATA."""
    results: Path = RESULTS
    resume: bool = False


def run_for(options: Options, find: Find, *, timing: bool = True, opens: bool = True) -> Run:
    """The run that the options ask for. UserError if they cannot work: nothing is then open.

    `find` gives an operator's problem class. Without `timing` no case is read; without `opens` no journal
    begins and the device is not locked.
    """
    others = OtherProcesses()
    if options.suite is not None and (options.sweeps or options.cases):
        given = "--bench-sweep" if options.sweeps else "--bench-case"
        raise UserError(f"--bench-suite chooses among all sweeps: leave it out, or {given}")
    if options.data not in ASKED_DATA:
        raise UserError(unknown("inputs", options.data, "--data", ASKED_DATA))
    device = detect(options.device)
    # One that there is not is refused when its sweeps are loaded.
    suite = None if options.suite is None else suites().get(options.suite)
    # GPUs of one kind share a folder, so runs on several at once need names of their own.
    beside_others = device.index is not None and concurrent_gpus() > 1
    run = Run(
        device,
        options.results,
        budget_s(options.budget, device.kind, suite),
        precision(options.precision),
        options.data,
        options.resume,
        concurrent_gpus=concurrent_gpus(),
        tags=tags_of(os.environ.get(TAGS, "")),
        suffix=f"-gpu{device.index}" if beside_others else "",
        suite=f"{options.suite}: {suite.title}" if suite else "",
        unusable=unusable_gpu() if device.kind == "cpu" and options.device == "auto" else "",
        others=others,
    )
    if timing:
        run.choose(chosen_cases(options.suite, options.sweeps, options.cases, device, find))
    if timing and opens:
        try:
            run.open()
        except UserError:
            run.interrupted()
            raise
    return run


def budget_s(given: str | None, kind: DeviceKind, suite: Suite | None = None) -> float | None:
    """Wall seconds that --bench-budget gives, None for no limit; UserError if it is no positive number.

    Without one those of the suite, or BUDGET_S.
    """
    if given is None:
        return BUDGET_S[kind] if suite is None else suite.limit_s(kind)
    seconds = _number(given)
    if not seconds > 0:
        raise UserError(f"--bench-budget {given}: give seconds, more than 0, or inf for no limit")
    return None if math.isinf(seconds) else seconds


def precision(given: str | None) -> float:
    """The share of a median that --bench-precision gives, `1%` or `0.01`; UserError if it is none."""
    if given is None:
        return PRECISION
    number, percent = given.removesuffix("%"), given.endswith("%")
    share = _number(number) / (100 if percent else 1)
    if not 0 < share < 1:
        raise UserError(f"--bench-precision {given}: give a share of the time, more than 0 and below 1: 1%")
    return share


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def concurrent_gpus() -> int:
    """How many GPUs are timed at the same time, by CONCURRENT; UserError for what is no such number."""
    given = os.environ.get(CONCURRENT, "1")
    if not given.isdecimal() or int(given) < 1:
        raise UserError(f"{CONCURRENT}={given}: give the number of GPUs that are timed at the same time")
    return int(given)


def tags_of(text: str) -> Mapping[str, str]:
    """The tags of TAGS, `key=value,key=value`, key by key. UserError says which cannot be kept, and why."""
    tags: dict[str, str] = {}
    for each in filter(None, text.split(",")):
        key, equals, value = (part.strip() for part in each.partition("="))
        if not equals or not value or not re.fullmatch(r"[A-Za-z0-9_.-]+", key):
            raise UserError(f"{TAGS}: {each!r}: give key=value; a key is letters, digits and _ . -")
        if tags.setdefault(key, value) != value:
            raise UserError(f"{TAGS}: {each!r}: {key} is {tags[key]} already; give each key once")
    return tags
