"""What a person is told before a run of how much it will measure and how long that takes."""

from __future__ import annotations

from collections.abc import Iterator

from bench.cli.table import lines_of, table
from bench.format import duration_text
from bench.runner.forecast import Forecast, Tally
from bench.runner.price import ASSUMED


def forecast_lines(found: Forecast, budget_s: float | None, rests_on: str) -> list[str]:
    """What the run will visit and how long it takes, what all of it would take, and what that rests on.

    `rests_on` ends the sentence `This rests on ...`; empty where nothing is known of how long a launch takes.
    """
    ceilings = f"{found.ceilings.cases} ceilings" if found.ceilings.cases else "no ceilings"
    if not rests_on:
        every = f"{_cases(found.possible)} can run here"
        if not found.ceilings.cases:
            return [every]
        return [f"{every}; first {ceilings}, which tell how many of them there is time for"]
    if budget_s is None or found.planned == found.possible:
        first = (
            f"planned: all {_cases(found.possible)}, and {ceilings}, in about {duration_text(found.seconds)}"
        )
        return [first, f"this rests on {rests_on}"]
    return [
        f"planned: {_share(found)}, and {ceilings} ({duration_text(found.ceilings.seconds)}), in about "
        f"{duration_text(found.seconds)}",
        f"all of them would take about {duration_text(found.all_s)} (--bench-budget inf)",
        f"this rests on {rests_on}",
    ]


def refined_line(found: Forecast) -> str:
    """The same of the cases alone, once the ceilings have been measured."""
    return (
        f"planned from the ceilings: {_share(found)}, in about {duration_text(found.planned.seconds)}; "
        f"all of them would take about {duration_text(found.possible.seconds)} (--bench-budget inf)"
    )


def _share(found: Forecast) -> str:
    planned, possible = found.planned, found.possible
    if possible.sweeps == 1:
        return f"{planned.cases:,} of {_cases(possible)}"
    return f"{planned.cases:,} of {possible.cases:,} cases, of {planned.sweeps} of {possible.sweeps} sweeps"


def plan_lines(found: Forecast, budget_s: float | None, rests_on: str) -> Iterator[str]:
    """The same with a table of operators, and every assumption with its source."""
    yield from forecast_lines(found, budget_s, rests_on)
    shown = table("operator", ">cases", ">of", ">sweeps", ">of", ">seconds", ">of")
    for operator, (planned, possible) in found.by_operator.items():
        shown.add_row(operator, *_columns(planned, possible))
    shown.add_row("ceilings", *_columns(found.ceilings, found.ceilings))
    yield from lines_of(shown)
    families = [f"{name} {some:,} of {every:,}" for name, (some, every) in found.by_family.items()]
    yield f"by implementation: {', '.join(families)}"
    yield "assumed until visits were made, in seconds or as a share:"
    for name, assumed in ASSUMED.items():
        yield f"  {name:<15} {assumed.value:<7g} {assumed.source}"


def _cases(tally: Tally) -> str:
    return f"{tally.cases:,} cases of {tally.sweeps} sweep{'s' * (tally.sweeps != 1)}"


def _columns(planned: Tally, possible: Tally) -> list[str]:
    pairs = zip(planned, possible, strict=True)
    return [f"{number:,.0f}" for pair in pairs for number in pair]
