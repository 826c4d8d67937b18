"""What a person reads of a scorecard: the table, what is in it and what is not, and the worst cases."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.markup import escape
from rich.table import Table

from bench.case_name import row_name
from bench.cli.table import lines_of, table
from bench.format import seconds_text
from bench.judge.score import Score, Scorecard, finest, scores, worst

BOUND_BY = {"L1": "limiter", "L2": "structured_limiter", "L3": "structured_limiter"}
"""Level -> the column that says what its prediction is bound by."""


def score_lines(card: Scorecard, most: int) -> Iterator[str]:
    """The whole report, with the `most` worst cases below the table."""
    scored = scores(card)
    if scored:
        yield from lines_of(_table(scored))
    yield (
        f"Scored: {card.scored} of {card.rows} rows, by |predicted / measured - 1|; "
        f"ratio: geometric mean of predicted / measured{card.left_out and '; '}{card.left_out}."
    )
    yield from _lost(card)
    if scored and most:
        yield ""
        yield f"Farthest off, by the finest level there is (predicted / measured, at most {most}):"
        yield from lines_of(_worst(card, most))


def _table(scored: Sequence[Score]) -> Table:
    shown = table("operator", "device", "level", ">n", ">MAPE %", ">median %", ">p90 %", ">ratio", "")
    several = len({score.regime for score in scored}) > 1
    for score in scored:
        marks = [f"imported: {score.source.split(';')[0]}"] if score.source else []
        marks += [score.regime or "regime unknown"] if several else []
        marks += [] if score.coverage is None else [f"90 % interval holds {score.coverage:.0f} %"]
        numbers = (f"{score.mape:.1f}", f"{score.median:.1f}", f"{score.p90:.1f}", f"{score.ratio:.3f}")
        words = (score.operator, score.device, score.level)
        shown.add_row(*map(escape, words), str(score.n), *numbers, escape(", ".join(marks)))
    return shown


def _lost(card: Scorecard) -> Iterator[str]:
    """The groups of which a level leaves rows without a number, and which level."""
    for group in card.groups:
        where = f"{group.operator} on {group.device}" + (" (imported)" if group.source else "")
        if not group.levels:
            yield f"{where}: no level has a prediction, so nothing is scored."
        elif any(group.lost.values()):
            missing = ", ".join(f"{level} {n}" for level, n in group.lost.items() if n)
            shared = f"all levels on the same {len(group.rows)} rows"
            yield f"{where}: {shared}; rows with a number lost: {missing}."


def _worst(card: Scorecard, most: int) -> Table:
    shown = table("case", "device", "level", ">ratio", ">predicted", ">measured", "bound by")
    for ratio, group, row in worst(card, most):
        level = finest(group)
        measured_s = float(row["median_s"])
        times = (seconds_text(ratio * measured_s), seconds_text(measured_s))
        words = (row_name(row) + (" (imported)" if group.source else ""), group.device, level)
        shown.add_row(
            *map(escape, words), f"{ratio:.3f}", *times, escape(str(row.get(BOUND_BY.get(level, ""), "")))
        )
    return shown
