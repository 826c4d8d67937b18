"""What `python -m bench accept` says of a unit: one screen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bench.accept.expected import ExpectedRates
from bench.accept.judge import JudgedKind, Verdict
from bench.accept.readings import NO_INTERVAL, unit_of
from bench.cli.table import table_lines
from bench.format import amount_text, seconds_text, share_text, span_text


def exit_code(judged: Sequence[JudgedKind]) -> int:
    """0: all that could be judged passes. 1: something is LOW, FAIL or IMPLAUSIBLE. 2: rows were not fit."""
    return {"PASS": 0, "UNKNOWN": 2}.get(overall(judged), 1)


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


def overall(judged: Sequence[JudgedKind]) -> Verdict:
    """The worst verdict of those that could be judged; UNKNOWN if none could, or one was disturbed."""
    verdicts = {each.verdict for each in judged}
    order: tuple[Verdict, ...] = ("IMPLAUSIBLE", "FAIL", "LOW", "PASS")
    worst: Verdict = next((verdict for verdict in order if verdict in verdicts), "UNKNOWN")
    return "UNKNOWN" if worst == "PASS" and _disturbed(judged) else worst


def _disturbed(judged: Sequence[JudgedKind]) -> list[str]:
    """Kinds of work that could have been judged on a quiet machine."""
    return [each.kind for each in judged if each.row.unfit not in ("", NO_INTERVAL)]


def sentence(judged: Sequence[JudgedKind]) -> str:
    """How many kinds of work are slower than expected, or faster than possible, and which most of all."""
    slow = [each for each in judged if each.verdict in ("FAIL", "LOW")]
    fast = [each.kind for each in judged if each.verdict == "IMPLAUSIBLE"]
    unfit = _disturbed(judged)
    known = sum(each.verdict != "UNKNOWN" for each in judged)
    if fast:
        return f"faster than this model can be in {len(fast)} of {known} kinds of work, as in {fast[0]}"
    if slow:
        worst = min(slow, key=_of_least)
        return (
            f"slower than expected in {len(slow)} of {known} kinds of work, most of all in {worst.kind}, at "
            f"{share_text(_of_least(worst))} of the lowest expected rate"
        )
    if unfit:
        return f"no row is fit to be judged in {len(unfit)} of {len(judged)} kinds of work, as in {unfit[0]}"
    if not known:
        return "too little is known of what to expect, or of how fast it is"
    rest = f", nothing is known of {len(judged) - known} more" if known < len(judged) else ""
    return f"as fast as expected in {known} of {known} kinds of work{rest}"


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
    """`650 to 790 TFLOP/s`; `unknown` if nothing says what to expect."""
    if expects is None:
        return "unknown"
    ends = (expects.high, expects.low) if unit_of(kind) == "1/s" else (expects.low, expects.high)
    return span_text(*(figure(kind, end) for end in ends))
