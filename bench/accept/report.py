"""What `python -m bench accept` says of a unit: one screen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bench.accept.expected import ExpectedRates
from bench.accept.judge import JudgedKind, Verdict
from bench.accept.readings import unit_of
from bench.case_name import row_name
from bench.cli.table import table_lines
from bench.format import amount_text, seconds_text, share_text


def exit_code(judged: Sequence[JudgedKind]) -> int:
    """0: all that could be judged passes. 1: something is LOW or FAIL. 2: nothing could be judged."""
    return {"PASS": 0, "LOW": 1, "FAIL": 1, "UNKNOWN": 2}[overall(judged)]


def lines(judged: Sequence[JudgedKind]) -> Iterator[str]:
    """The verdict in a sentence, a row for each kind of work, and what may be the cause."""
    yield headline(judged)
    names = ("kind of work", "verdict", ">measured", ">expected", ">promised", "by")
    rows = [
        (
            each.kind,
            each.verdict,
            figure(each.kind, each.row.rate),
            range_text(each.kind, each.expects),
            figure(each.kind, each.promised),
            each.expects.by if each.expects else "",
        )
        for each in judged
    ]
    yield from table_lines(names, rows)
    for each in judged:
        if each.causes:
            yield f"{each.kind}: {'; '.join(each.causes)}"
        elif each.verdict in ("LOW", "FAIL"):
            yield f"{each.kind}: no flag tells a cause: {row_name(each.row)}"


def overall(judged: Sequence[JudgedKind]) -> Verdict:
    """The worst verdict of those that could be judged."""
    verdicts = {each.verdict for each in judged}
    order: tuple[Verdict, ...] = ("FAIL", "LOW", "PASS")
    return next((verdict for verdict in order if verdict in verdicts), "UNKNOWN")


def sentence(judged: Sequence[JudgedKind]) -> str:
    """How many kinds of work are slower than expected, or faster than possible, and which most of all."""
    bad = [each for each in judged if each.verdict in ("FAIL", "LOW")]
    unknown = sum(each.verdict == "UNKNOWN" for each in judged)
    known = len(judged) - unknown
    if not known:
        return "no earlier run, no timing of others and no datasheet says what to expect"
    if not bad:
        rest = f", nothing is known of {unknown} more" if unknown else ""
        return f"as fast as expected in {known} of {known} kinds of work{rest}"
    worst = min(bad, key=_of_least)
    if _of_least(worst) >= 1:
        return f"faster than its kind can be in {len(bad)} of {known} kinds of work, as in {worst.kind}"
    return (
        f"slower than expected in {len(bad)} of {known} kinds of work, most of all in {worst.kind}, at "
        f"{share_text(_of_least(worst))} of the least that is expected"
    )


def headline(judged: Sequence[JudgedKind]) -> str:
    """Device, verdict and sentence."""
    return f"{judged[0].row.device_name}: {overall(judged)}: {sentence(judged)}"


def _of_least(each: JudgedKind) -> float:
    return each.row.rate / each.expects.low if each.expects else 1.0


def figure(kind: str, rate: float | None) -> str:
    """A rate, or of launches the time."""
    if rate is None:
        return ""
    return seconds_text(1 / rate) if unit_of(kind) == "1/s" else amount_text(rate, unit_of(kind))


def range_text(kind: str, expects: ExpectedRates | None) -> str:
    """`650 TFLOP/s to 790 TFLOP/s`; `unknown` if nothing says what to expect."""
    if expects is None:
        return "unknown"
    ends = (expects.high, expects.low) if unit_of(kind) == "1/s" else (expects.low, expects.high)
    return " to ".join(figure(kind, end) for end in ends)
