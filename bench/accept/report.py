"""What `python -m bench accept` says of a unit: one screen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from bench.accept.expected import ExpectedRates
from bench.accept.judge import JudgedKind, Verdict
from bench.accept.readings import NO_INTERVAL, unit_of
from bench.cli.table import table_lines
from bench.format import amount_text, count_text, seconds_text, share_text, span_text

WORST_FIRST: tuple[Verdict, ...] = ("IMPLAUSIBLE", "FAIL", "LOW", "PASS", "UNKNOWN")
SLOWER = "slower than expected"
SAID: Mapping[Verdict, str] = {
    **{"IMPLAUSIBLE": "faster than this model can be", "PASS": "as fast as expected"},
    **{"FAIL": SLOWER, "LOW": SLOWER},
}


def exit_code(judged: Sequence[JudgedKind]) -> int:
    """0: all that could be judged passes. 1: something is LOW, FAIL or IMPLAUSIBLE. 2: rows were not fit."""
    return {"PASS": 0, "UNKNOWN": 2}.get(overall(judged), 1)


def lines(judged: Sequence[JudgedKind]) -> Iterator[str]:
    """The verdict in a sentence, a row for each kind of work, and what may be the cause."""
    yield f"{judged[0].row.device_name}: {overall(judged)}: {sentence(judged)}"
    names = ("kind of work", "verdict", ">measured", ">expected", ">promised", "by")
    rows = []
    for each in judged:
        measured, promised = (figure(each.kind, rate) for rate in (each.row.rate, each.promised))
        by = each.expects.by if each.expects else ""
        rows.append((each.kind, each.verdict, measured, range_text(each.kind, each.expects), promised, by))
    yield from table_lines(names, rows)
    for each in judged:
        if each.causes:
            yield f"{each.kind}: {'; '.join(each.causes)}"


def overall(judged: Sequence[JudgedKind]) -> Verdict:
    """The worst verdict of those that could be judged; UNKNOWN if none could, or one was disturbed."""
    worst = min((each.verdict for each in judged), key=WORST_FIRST.index)
    # Only a quiet machine tells of these kinds.
    disturbed = any(each.row.unfit not in ("", NO_INTERVAL) for each in judged)
    return "UNKNOWN" if worst == "PASS" and disturbed else worst


def sentence(judged: Sequence[JudgedKind]) -> str:
    """Whether the unit is as fast as expected, in how many kinds of work, and where it is slowest."""
    known = [each for each in judged if each.verdict != "UNKNOWN"]
    rest = f"; nothing is known of {len(judged) - len(known)} more" if len(known) < len(judged) else ""
    worst = overall(judged)
    if worst == "UNKNOWN":
        return "too little is known of what to expect, or its rows are not fit to be judged"
    those = [each for each in known if SAID[each.verdict] == SAID[worst]]
    where = f", as in {those[0].kind}" if worst == "IMPLAUSIBLE" else ""
    if worst in ("LOW", "FAIL"):
        shares = {each.kind: each.row.rate / each.expects.low for each in those if each.expects}
        least = min(shares, key=shares.__getitem__)
        where = f", most of all in {least}, at {share_text(shares[least])} of the lowest expected rate"
    return f"{SAID[worst]} in {len(those)} of {count_text(len(known), 'kind')} of work{where}{rest}"


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
