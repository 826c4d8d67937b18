"""`python -m bench list`: the sweeps and their cases, or the plan of a run."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bench.device.datasheet import Datasheet
from bench.device.detect import Device
from bench.format import duration_text, seconds_text
from bench.model.roofline import datasheet_s
from bench.runner.forecast import Prices, impossible
from bench.sweep.load import Case, Loaded

if TYPE_CHECKING:
    from bench.runner.comparisons import Claims


def listing(device: Device, loaded: Iterable[Loaded], cases: bool) -> Iterator[str]:
    """One line for each sweep, with `cases` one for each case too, then the totals."""
    sheet = device.datasheet
    known = "no datasheet: a CPU's ceilings are measured" if sheet is None else f"datasheet {sheet.name}"
    yield f"{device}: {known}"
    total_s, count, runnable = 0.0, 0, 0
    for sweep, listed in loaded:
        here = [case for case in listed if not case.missing(device.kind, device.capability)]
        least = [_least_s(case, device) for case in here]
        least_s = sum(s for s in least if s is not None)
        count, runnable, total_s = count + len(listed), runnable + len(here), total_s + least_s
        text = f"  one launch each: {seconds_text(least_s)}" if least_s else ""
        yield f"{listed[0].sweep:<24} {len(here):>5} of {len(listed):>5} cases run here{text}   {sweep.title}"
        if cases:
            for case in listed:
                yield _line(case, device)
    text = f"; one launch of each takes at least {duration_text(total_s)}" if total_s else ""
    yield f"{runnable} of {count} cases run here{text}"


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


def planned(
    device: Device,
    cases: Sequence[Case],
    claims: Claims,
    prices: Prices,
    *,
    named: bool = False,
) -> Iterator[str]:
    """The plan of a run over these cases, by the prices with which runs begin; `named`: each case too."""
    # A plan imports more than listing needs.
    from bench.cli.run_lines import claims_line, left_out_lines, plan_lines
    from bench.runner.comparisons import comparisons

    prices.limit_ceilings(cases)
    ceilings = [case for case in cases if case.role != "measurement"]
    able = [case for case in cases if impossible(case, device) is None and case.role == "measurement"]
    compared = comparisons(able, claims, prices)
    ordered = list({case.key: case for each in compared for case in each.cases}.values())
    forecast = prices.forecast([*ceilings, *ordered], comparisons=[each.keys for each in compared])
    if named:
        for case in (*ceilings, *ordered):
            yield _line(case, device) + (
                "" if case.key in forecast.keys or case in ceilings else "   no time"
            )
    visits = prices.settings.visits
    yield f"{device.name}, {visits} visit{'s' * (visits > 1)} of each case"
    yield from plan_lines(forecast, prices.budget_s, device)
    if line := claims_line(compared, forecast.keys, named=True):
        yield line
    yield from left_out_lines([each for each in compared if not forecast.keys.issuperset(each.keys)])


def _least_s(case: Case, device: Device) -> float | None:
    problem = case.problem
    return datasheet_s(problem.flop, problem.byte, problem.arithmetic, problem.dtype, device.datasheet)


def _line(case: Case, device: Device) -> str:
    least_s = _least_s(case, device)
    remark = case.missing(device.kind, device.capability) or (
        "" if least_s is None else f"at least {seconds_text(least_s)}"
    )
    return f"    {case.name}   {remark}".rstrip()


def five_thousand_cases() -> Path:
    """A sweep of 5,000 cases in a temporary folder, for measuring how long collecting takes."""
    path = Path(tempfile.mkdtemp()) / "five_thousand.yaml"
    path.write_text(
        "title: Five thousand cases\n"
        "source: {document: none, range: ours}\n"
        "operator: gemm\n"
        "implementations: onednn\n"
        "cases:\n"
        "  - {m: {from: 1, to: 50}, n: {from: 1, to: 50}, k: 64, dtype: [float32, float64], layout: NN}\n"
    )
    return path
