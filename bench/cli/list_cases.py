"""`python -m bench list`: the sweeps and their cases, or the plan of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from bench.device.datasheet import Datasheet
from bench.device.detect import Device
from bench.format import count_text, seconds_text
from bench.model.roofline import datasheet_s
from bench.runner.limits import impossible
from bench.sweep.load import Case, Loaded

if TYPE_CHECKING:
    from bench.runner.comparisons import Claims


def listing(device: Device, loaded: Iterable[Loaded], *, named: bool) -> Iterator[str]:
    """One line for each sweep; `named`: one for each case too; the totals."""
    sheet = device.datasheet
    known = "no datasheet: a CPU's ceilings are measured" if sheet is None else f"datasheet {sheet.name}"
    yield f"{device}: {known}"
    able = every = 0
    for each in loaded:
        why = Counter(case.missing(device.kind, device.capability) for case in each.cases)
        reason = "" if why[""] else f": {why.most_common(1)[0][0]}"
        head = f"{each.name:<24} {why['']:>5} of {len(each.cases):>5} cases run here"
        yield f"{head}{reason}   {each.sweep.title}"
        yield from (_line(case, device) for case in each.cases) if named else ()
        able, every = able + why[""], every + len(each.cases)
    yield f"{able} of {count_text(every, 'case')} run here"


def of_datasheet(sheet: Datasheet) -> Device:
    """A GPU that is not here, as far as its datasheet describes it."""
    facts = {name: getattr(sheet, name) for name in ("name", "slug", "sm_count", "memory_byte", "capability")}
    none: dict[str, Any] = {"index": None, "id": "", "uuid": "", "driver": ""}
    return Device(kind="cuda", cache_byte=sheet.l2_byte, datasheet=sheet, **facts, **none)


def planned(device: Device, cases: Sequence[Case], claims: Claims, *, named: bool = False) -> Iterator[str]:
    """What a run over these cases measures, in the order in which it begins; `named`: each case too."""
    # A plan imports more than listing needs.
    from bench.cli.run_lines import asked_text
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
    claims_count = sum(each.claim is not None for each in compared)
    yield f"these cases are enough for verdicts on {count_text(claims_count, 'claim')}"


def _line(case: Case, device: Device) -> str:
    of = case.problem
    least_s = datasheet_s(of.flop, of.byte, of.arithmetic, of.dtype, device.datasheet)
    least = "" if least_s is None else f"at least {seconds_text(least_s)}"
    return f"    {case.name}   {case.missing(device.kind, device.capability) or least}".rstrip()
