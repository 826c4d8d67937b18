"""`python -m bench list`: the sweeps and their cases, or the plan of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from bench.device.datasheet import Datasheet
from bench.device.detect import Device
from bench.format import count_text, seconds_text
from bench.model.roofline import datasheet_s
from bench.runner.limits import impossible
from bench.sweep.load import Case, Loaded

if TYPE_CHECKING:
    from bench.runner.comparisons import Claims


def listing(device: Device, loaded: Iterable[Loaded], *, cases: bool, folders: bool) -> Iterator[str]:
    """One line for each sweep, or for each folder of them; with `cases` one for each case too; the totals."""
    sheet = device.datasheet
    known = "no datasheet: a CPU's ceilings are measured" if sheet is None else f"datasheet {sheet.name}"
    yield f"{device}: {known}"
    groups: dict[str, list[Loaded]] = {}
    for each in loaded:
        groups.setdefault(each.name.partition("/")[0] if folders else each.name, []).append(each)
    for name, sweeps in groups.items():
        listed = [case for each in sweeps for case in each.cases]
        head = f"{name:<18} {count_text(len(sweeps), 'sweep'):>9}" if folders else f"{name:<24}"
        title = "" if folders else f"   {sweeps[0].sweep.title}"
        yield f"{head} {_counts(listed, device)}{title}"
        if cases:
            for case in listed:
                yield _line(case, device)
    every = [case for sweeps in groups.values() for each in sweeps for case in each.cases]
    yield f"{len(_able(every, device))} of {count_text(len(every), 'case')} run here"
    if folders:
        yield "python -m bench list FOLDER lists its sweeps, --all every sweep, --cases every case"
    elif not cases:
        yield "--cases lists every case"


def _able(cases: Iterable[Case], device: Device) -> list[Case]:
    return [case for case in cases if not case.missing(device.kind, device.capability)]


def _counts(cases: Sequence[Case], device: Device) -> str:
    """How many of the cases run on the device; if none do, why not."""
    able = _able(cases, device)
    text = f"{len(able):>5} of {len(cases):>5} cases run here"
    if not able:
        kinds = {kind for case in cases for kind in case.problem.implementation(case.implementation).devices}
        if device.kind not in kinds:
            return f"{text}: all of them need {' or '.join(sorted(kinds))}"
        reasons = Counter(case.missing(device.kind, device.capability) for case in cases)
        (first, _), *others = reasons.most_common()
        return f"{text}: {first}" + (f"; reasons in all: {len(reasons)}" if others else "")
    return text


def of_datasheet(sheet: Datasheet) -> Device:
    """A GPU that is not here, as far as its datasheet describes it."""
    return Device(
        kind="cuda",
        index=None,
        name=sheet.name,
        slug=sheet.slug,
        id="",
        uuid="",
        sm_count=sheet.sm_count,
        cache_byte=sheet.l2_byte,
        memory_byte=sheet.memory_byte,
        capability=sheet.capability,
        driver="",
        datasheet=sheet,
    )


def planned(device: Device, cases: Sequence[Case], claims: Claims, *, named: bool = False) -> Iterator[str]:
    """What a run over these cases measures, in the order in which it begins; `named`: each case too."""
    # A plan imports more than listing needs.
    from bench.cli.run_lines import asked_text, claims_line
    from bench.runner.comparisons import comparisons

    ceilings = [case for case in cases if case.role != "measurement"]
    able = [case for case in cases if impossible(case, device) is None and case.role == "measurement"]
    compared = comparisons(able, claims, device)
    ordered = list({case.key: case for each in compared for case in each.cases}.values())
    if named:
        yield from (_line(case, device) for case in (*ceilings, *ordered))
    yield f"{device.name}: {asked_text([*ceilings, *ordered])}"
    operators = Counter(case.problem.operator for case in ordered)
    yield f"by operator: {', '.join(f'{count:,} {name}' for name, count in operators.items())}"
    if line := claims_line(compared):
        yield line


def _least_s(case: Case, device: Device) -> float | None:
    problem = case.problem
    return datasheet_s(problem.flop, problem.byte, problem.arithmetic, problem.dtype, device.datasheet)


def _line(case: Case, device: Device) -> str:
    least_s = _least_s(case, device)
    remark = case.missing(device.kind, device.capability) or (
        "" if least_s is None else f"at least {seconds_text(least_s)}"
    )
    return f"    {case.name}   {remark}".rstrip()
