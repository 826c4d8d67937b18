"""Ceilings of a run: those that its cases need, and which of them are taken from earlier runs.

They are taken instead of measured where visits show that the machine is as it was. They must be of this unit,
since it was started, under this protocol, and recent. The copy, and the product where there is one, are
measured anew: only if each agrees with what a run measured are that run's other ceilings taken. Memory may
have two speeds, and then all of its ceilings do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from bench.device.detect import Device
from bench.errors import UserError
from bench.format import amount_text, count_text
from bench.judge.comparability import FACTS, value
from bench.judge.flags import disturbances
from bench.runner.forecast import case_traffic, impossible
from bench.sampling.protocol import Protocol
from bench.store.parquet import read_rows
from bench.store.schema import Measurement
from bench.sweep.load import Case

COPY = 0.5
"""Share of its bytes that a copy writes."""
_SAME_SHARE = 1e-3
"""Two shares of written bytes that are no farther apart are one."""
RECENT = timedelta(hours=1)
"""Ceilings that are older are not taken."""
CLOSE = 0.1
"""A sentinel that is farther off than this confirms nothing, however wide the interval was."""
SAME = tuple(fact for fact in FACTS if fact.name != "commit")
"""What two runs must have in common in addition to unit and boot; own kernels are no sentinels."""

Rows = Mapping[str, Measurement]
"""Key of a case -> its row."""


# ---- what the cases need


def needed_ceilings(requested: Iterable[Case], ceilings: Iterable[Case], device: Device) -> list[Case]:
    """The ceilings with which the cases are compared on this device; what is needed most first.

    The launch floor, the copy, the peaks of the cases' arithmetic and data types, then the passes of memory
    whose shares of written bytes are nearest to theirs; of warm cases the caches; and for a GPU's matrix
    products the caches, one SM, one tile and the calibration shapes, of which the model of tiles is made.
    All of as many threads as the cases. None if no case can run.
    """
    able = [case for case in requested if case.role == "measurement" and impossible(case, device) is None]
    ceilings = [case for case in ceilings if impossible(case, device) is None]
    all_threads = {case.threads for case in able}
    peaks = Counter(_unit(case) for case in able if case.problem.flop)
    tiles = {
        case.problem.dtype
        for case in able
        if device.kind == "cuda" and case.problem.arithmetic == "matrix" and case.problem.flop
    }
    warm = {case.threads for case in able if case.cache == "warm"}
    measured = sorted({written_share(case) for case in ceilings if is_pass(case)})
    shares = {case_traffic(case, device)[1] for case in able if case.problem.byte}
    passes = {near for share in shares for near in _neighbours(share, measured)} | {COPY}

    def rank(ceiling: Case) -> tuple[int, int] | None:
        """How much a ceiling is needed, the least first; None if it is not."""
        problem, threads = ceiling.problem, ceiling.threads
        if threads not in all_threads:
            return None
        if ceiling.role == "roof":
            if problem.flop:
                count = peaks[_unit(ceiling)]
                return (2, -count) if count else None
            if not problem.byte:
                return 0, 0
            share = written_share(ceiling)
            if not any(abs(share - needed) < _SAME_SHARE for needed in passes):
                return None
            return (1, 0) if share == COPY else (3, 0)
        if problem.flop:
            return (5, 0) if problem.dtype in tiles else None
        if ceiling.cache == "warm":
            return (4, 0) if tiles or threads in warm else None
        return (5, 0) if tiles else None

    ranked = [(needed, case) for case in ceilings if (needed := rank(case)) is not None]
    return [case for _, case in sorted(ranked, key=lambda pair: pair[0])]


def written_share(case: Case) -> float:
    """Share of a ceiling's bytes that are written."""
    return case.problem.byte_written / case.problem.byte


def _unit(case: Case) -> tuple[str, str, str]:
    """The units whose peak the case needs: (threads, arithmetic, data type)."""
    return case.threads, case.problem.arithmetic, case.problem.dtype


def is_pass(ceiling: Case) -> bool:
    """Whether it reads or writes memory as fast as it can."""
    return ceiling.role == "roof" and bool(ceiling.problem.byte) and not ceiling.problem.flop


def _neighbours(share: float, measured: Sequence[float]) -> set[float]:
    """The measured shares between which this one lies, one if it is that; the nearest beyond the ends."""
    below = [each for each in measured if each <= share + _SAME_SHARE]
    above = [each for each in measured if each >= share - _SAME_SHARE]
    return {*below[-1:], *above[:1]}


# ---- what earlier runs have


def recent_ceilings(folder: Path, device: Device, protocol: Protocol) -> list[Rows]:
    """The sound ceilings that each recent run in this folder measured on this unit, the newest run first.

    None where nothing tells when the machine was started. Files that cannot be read are left out.
    """
    since = datetime.now(UTC) - RECENT
    files = [path for path in folder.glob("*.parquet") if path.stat().st_mtime >= since.timestamp()]
    runs: list[Rows] = []
    for path in sorted(files, key=lambda each: each.name, reverse=True) if device.boot else ():
        try:
            rows = read_rows(path)
        except UserError:
            continue
        ours = (row for row in rows if (row.device_id, row.boot) == (device.id, device.boot))
        sound = [
            row
            for row in ours
            if row.protocol == protocol.hash
            and row.role != "measurement"
            and row.is_timed
            and row.measured_in is None
            and datetime.fromisoformat(row.utc) >= since
            and not disturbances(row)
        ]
        if sound:
            runs.append({row.case: row for row in sound})
    return runs


@dataclass(frozen=True)
class EarlierCeilings:
    """The ceilings that a run may take from earlier ones."""

    cases: Sequence[Case] = ()
    """The ceilings that the run needs and nobody requested; what is needed most first."""
    runs: Sequence[Rows] = ()
    """What recent runs measured, the newest first."""

    @property
    def sentinels(self) -> list[Case]:
        """The copy and the product to be measured anew, of each number of threads; none without a copy."""
        known = [case for case in self.cases if any(case.key in run for run in self.runs)]
        copies: dict[str, Case] = {}
        products: dict[str, Case] = {}
        for case in known:
            if is_pass(case) and written_share(case) == COPY:
                copies.setdefault(case.threads, case)
        for case in known:
            if case.role == "roof" and case.problem.flop and case.threads in copies:
                products.setdefault(case.threads, case)
        return [*copies.values(), *products.values()]

    @property
    def offered(self) -> frozenset[str]:
        """Keys of the ceilings that need not be measured if the sentinels agree with every run."""
        return frozenset(row.case for row in self._confirmed(lambda before, sentinel: True))

    def taken(self, now: Rows, run_id: str) -> tuple[list[Measurement], str]:
        """(the rows that are taken, as rows of the run `run_id`; a sentence on them, or why there are none).

        `now` are the rows of the sentinels, just measured.
        """
        rows = list(
            self._confirmed(lambda before, sentinel: not _change(sentinel, before, now[sentinel.key]))
        )
        sentinels = self.sentinels
        if not rows:
            pairs = ((run, each) for run in self.runs for each in sentinels if each.key in run)
            changes = (_change(each, run[each.key], now[each.key]) for run, each in pairs)
            change = next(filter(None, changes), "")
            return [], f"ceilings are measured anew: {change}" if change else ""
        seen = " and ".join(f"a {_what(case)}: {_rate(now[case.key])}" for case in sentinels)
        # When a visit ended says nothing in another run.
        copies = [replace(row, run_id=run_id, measured_in=row.run_id, visit_at_s=None) for row in rows]
        return copies, f"ceilings of {_origin(rows)}, confirmed by {seen}"

    def _confirmed(self, agrees: Callable[[Measurement, Case], bool]) -> Iterator[Measurement]:
        """The newest row of each ceiling but sentinels whose run's sentinels agree: (row then, sentinel)."""
        sentinels = self.sentinels
        for case in self.cases:
            of_case = [
                each
                for each in sentinels
                if each.threads == case.threads and (case.problem.flop or not each.problem.flop)
            ]
            if case in sentinels or not of_case:
                continue
            for run in self.runs:
                if case.key in run and all(
                    each.key in run and agrees(run[each.key], each) for each in of_case
                ):
                    yield run[case.key]
                    break


def _change(sentinel: Case, before: Measurement, now: Measurement) -> str:
    """How a sentinel, or a fact that must be the same, differs from an earlier run; empty if it does not."""
    what, run = _what(sentinel), _short(before.run_id)
    if not now.is_timed or now.median_s is None:
        return f"the {what} has no time ({now.status}: {now.reason})"
    for fact in SAME:
        if (then := value(before, fact)) != (is_now := value(now, fact)):
            return f"{fact.name} was {then} in run {run} and is {is_now}"
    if before.median_s is None or before.low_s is None or before.high_s is None:
        return f"the {what} of run {run} has no interval"
    low_s, high_s = max(before.low_s, before.median_s / (1 + CLOSE)), before.high_s
    if low_s <= now.median_s <= min(high_s, before.median_s * (1 + CLOSE)):
        return ""
    return f"a {what} reached {_rate(now)}, not {_rate(before)} as in run {run}"


def _what(case: Case) -> str:
    threads = " by one thread" if case.threads == "one" else ""
    return f"{case.problem.dtype} product{threads}" if case.problem.flop else f"copy{threads}"


def _rate(row: Measurement) -> str:
    count, unit = (row.flop, "FLOP/s") if row.flop else (row.byte, "B/s")
    return amount_text(count / row.median_s if row.median_s else None, unit)


def _origin(rows: Sequence[Measurement]) -> str:
    """The runs that these rows are of, with the age of the oldest row."""
    runs = sorted({row.run_id for row in rows})
    oldest = min(datetime.fromisoformat(row.utc) for row in rows)
    ago = f"({(datetime.now(UTC) - oldest) / timedelta(minutes=1):.0f} min ago)"
    if len(runs) == 1:
        return f"run {_short(runs[0])} {ago}"
    return f"{count_text(len(runs), 'run')} since {_short(runs[0])} {ago}"


def _short(run_id: str) -> str:
    """When a run began, which is how its id begins."""
    return run_id.partition("-")[0]
