"""What a run's rows decide of the claims that its own file keeps: the lines below a sweep's figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from bench.format import count_text
from bench.judge.claims import JudgedClaim, judge, kept
from bench.judge.frame import DeviceRun
from bench.store.parquet import Sweeps

MOST = 5
"""Claims of one sweep that get a line of their own; of the others only the words are counted."""
SILENT = ("NOT MEASURED", "NOT APPLICABLE")


def verdicts(run: DeviceRun, sweeps: Sweeps) -> list[JudgedClaim]:
    """The verdicts on every claim that the run's file keeps with a test.

    `sweeps` is what the run's sweeps declared (`bench.store.parquet.read_sweeps`).
    """
    stored = [claims for name, sweep in sweeps.items() if (claims := kept(name, sweep)) and claims.claims]
    return judge([run], stored) if stored else []


def by_sweep(verdicts: Sequence[JudgedClaim]) -> dict[str, tuple[str, ...]]:
    """Sweep -> its lines; none for sweeps without claims, or whose claims have no test."""
    judged: dict[str, list[JudgedClaim]] = {}
    for each in verdicts:
        judged.setdefault(each.declared.name, []).append(each)
    return {sweep: tuple(_lines(of_sweep)) for sweep, of_sweep in judged.items()}


def _lines(judged: Sequence[JudgedClaim]) -> list[str]:
    """A line for each claim that rows speak to, then one for each word of those that none does."""
    spoken = [each for each in judged if each.verdict not in ("TOO FEW", *SILENT)]
    lines = [_line(each) for each in spoken[:MOST]]
    if rest := spoken[MOST:]:
        words = Counter(each.verdict for each in rest)
        counts = ", ".join(f"{count} {word}" for word, count in words.items())
        lines.append(
            f"{count_text(len(rest), 'further claim')}: {counts}; `python -m bench claims` lists them."
        )
    if few := [each for each in judged if each.verdict == "TOO FEW"]:
        names = ", ".join(f"{each.claim.id} {each.reason.split(';')[0]}{_suspect(each)}" for each in few)
        lines.append(f"TOO FEW rows to decide: {names}.")
    for word in SILENT:
        if silent := [each for each in judged if each.verdict == word]:
            names = ", ".join(each.claim.id for each in silent)
            reasons = "; ".join(dict.fromkeys(each.reason for each in silent))
            lines.append(f"{names}: {word} ({reasons}).")
    return lines


def _line(judged: JudgedClaim) -> str:
    claim = judged.claim
    effect = str(judged.effect or "")
    decided = f"{judged.verdict}, {effect}, expected {claim.expect}{_suspect(judged)}"
    return f"{_named(judged)}: {decided}. {claim.says}."


def _suspect(judged: JudgedClaim) -> str:
    return f" ({count_text(judged.suspect, 'suspect row')} left out)" if judged.suspect else ""


def _named(judged: JudgedClaim) -> str:
    """`MM-01, rules 3, 7 and 13`."""
    rules = list(map(str, judged.claim.rules))
    if len(rules) < 2:
        return ", rule ".join([judged.claim.id, *rules])
    return f"{judged.claim.id}, rules {', '.join(rules[:-1])} and {rules[-1]}"
