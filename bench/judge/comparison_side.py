"""One side of a comparison: each case's newest row, with all that its run says about it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, NamedTuple

import numpy as np

from bench.environment.chosen_code import environment_change
from bench.errors import UserError
from bench.judge import frame
from bench.judge.comparability import FACTS, SOFTWARE, differing, value
from bench.judge.flags import FLAGS, again_timed, explained
from bench.judge.noise import OURS, BetweenRuns, interval
from bench.judge.within_run import WithinRun, within_run
from bench.judge.work_class import WorkClass, work_of
from bench.model.ceilings import Ceilings
from bench.model.roofline import calibrated, calibrated_row
from bench.sampling.publish import student
from bench.store.schema import Measurement, RunKey

NOT_MEASURED = ("unsupported", "skipped")
"""Statuses of rows that were never timed: treated as missing, except that their reason is shown."""
DISTURBING = frozenset(flag.name for flag in FLAGS if flag.disturbed)
"""Flags whose cause is the machine."""
Bound = Literal["memory", "core"]
"""What a row's time follows: the speed of memory, or of the cores (and of whatever else is not memory)."""
LEAST_CEILINGS, LEAST_ALIKE = 6, 3
"""Fewest ceilings to judge the machine as a whole, and one kind of its work."""
NEAR_ROOF = 1.25
"""Times its prediction within which a row that memory limits does run at memory's speed. Above, something
else takes the time: on a CPU the functions of activations, which the model gives no peak of their own."""
HIDDEN = 0.5
"""Share of the time of a row at memory's speed that, by prediction, launching and arithmetic take at most."""


class CaseKey(NamedTuple):
    """What was measured."""

    sweep: str
    operator: str
    implementation: str
    parameters: str
    """The parameters as JSON, as the rows have them."""
    cache: str
    threads: str
    """all | one"""


class CaseInRun(NamedTuple):
    """A case as one run saw it; what its time may be off by as natural logarithms."""

    row: Measurement
    flags: tuple[str, ...]
    """The flags that have a `cause`."""
    within: WithinRun | None = None
    """None where it is unknown how far off the time may be."""
    runs: BetweenRuns = BetweenRuns(0.0, "assumed")
    down: float = 0.0
    """How far below its median its time may be, 95 times in 100, with both of these ..."""
    up: float = 0.0
    """... and how far above."""
    cause: float = 0.0
    """What the causes of its flags may have added to its time."""

    @property
    def shared(self) -> float:
        """What all rows of its run and kind may share: noise between runs, and a neighbour who stayed."""
        return self.runs.half + self.cause


Looks = Mapping[CaseKey, CaseInRun]


@dataclass(frozen=True)
class Side:
    """Everything measured on one side of a comparison."""

    looks: Looks
    """Each case's newest."""
    runs: Mapping[RunKey, Looks]
    """What each run measured that a look of this side comes from."""
    absent: Mapping[CaseKey, str]
    """Cases that some run did not measure -> `skipped: reason`; another run may have measured them."""
    facts: Mapping[str, tuple[str, ...]]
    """Name of a fact -> its values over all looks, sorted; also `run` and `utc` (the ends)."""


def side(runs: Sequence[frame.DeviceRun], name: str) -> Side:
    """The side made of one device's runs. UserError, with `name`, if there is none or they are of several."""
    devices = sorted({run.device for run in runs})
    if not devices:
        raise UserError(f"{name} holds no row")
    if len(devices) > 1:
        raise UserError(f"{name} holds rows of {len(devices)} devices, name one's: {', '.join(devices)}")
    seen = {run.key: of_run(run) for run in runs}
    # Where `visit` is not 0, an older file holds the second visit to a ceiling.
    looks = [look for each in seen.values() for look in each.values()]
    # An imported row never replaces a measured one.
    looks.sort(key=lambda look: (look.row.source is None, look.row.utc))
    newest = {case_of(look.row): look for look in looks}
    used = {RunKey.of(look.row) for look in newest.values()}
    rows = [again_timed(row) for run in runs for row in run.rows]
    absent = {case_of(row): f"{row.status}: {row.reason}" for row in rows if row.status in NOT_MEASURED}
    facts = _facts([look.row for look in newest.values()])
    return Side(newest, {key: each for key, each in seen.items() if key in used}, absent, facts)


def of_run(run: frame.DeviceRun) -> dict[CaseKey, CaseInRun]:
    """What one run has to compare."""
    again = [again_timed(row) for row in run.rows]
    unchanged = all(row is before for row, before in zip(again, run.rows, strict=True))
    within = run.within if unchanged else within_run(again)
    flags = run.flags if unchanged else [run.flags_of(row) for row in again]
    return {
        case_of(row): _look(row, flags, within)
        for row, flags, within in zip(again, flags, within, strict=True)
        if row.status not in NOT_MEASURED and row.measured_in is None and not row.visit
    }


def _look(row: Measurement, flags: Sequence[str], within: WithinRun | None) -> CaseInRun:
    cause = explained(row, flags)
    causing = tuple(name for name in flags if explained(row, [name]))
    if within is None or (ends := interval(row, within)) is None or not math.isfinite(cause):
        return CaseInRun(row, causing)
    if row.run_half is not None:  # as it was published
        within = within._replace(half=min(within.half, row.run_half))
    down, up, runs = ends
    return CaseInRun(row, causing, within, runs, down, up, cause)


class Shift(NamedTuple):
    """What the same ceilings took in one run and in another, with the same libraries and driver."""

    by: float
    """Median ln(seconds after / seconds before): what the machine as a whole did."""
    error: float
    """Its 95 % half-width."""
    ceilings: int
    by_work: Mapping[WorkClass, Shift] = MappingProxyType({})
    """The same by the ceilings of one kind of work: a neighbour may take the memory and leave the cores."""

    @property
    def is_sure(self) -> bool:
        """Whether the machine became slower or faster: by more than 2.5 times that error.

        In the 67 pairs of committed nights and tours between which nothing changed it was at most 2.0 times.
        """
        return abs(self.by) > 2.5 * self.error


def between_runs(before: Looks, after: Looks) -> Shift | None:
    """How the speed of the machine changed between two runs; None with too few common ceilings.

    Ceilings are the libraries' kernels and none of ours: where two runs have the same libraries, driver and
    environment, what their ceilings differ by together is the machine's doing. Ceilings that were measured
    under another condition (a power limit, a protocol, another card) tell what that does, not what the
    machine did.
    """
    moves: dict[WorkClass, list[float]] = defaultdict(list)
    for case in before.keys() & after.keys():
        looks = before[case], after[case]
        first, second = (look.row for look in looks)
        sound = all(look.within and DISTURBING.isdisjoint(look.flags) for look in looks)
        if case.implementation.startswith(OURS) or first.role == "measurement" or not sound:
            continue
        if any(value(first, fact) != value(second, fact) for fact in SOFTWARE) or environment_change(
            first.environment, second.environment
        ):
            return None
        if not differing(first, second):
            assert first.median_s and second.median_s
            moves[work_of(first)].append(math.log(second.median_s / first.median_s))
    every = [move for of_work in moves.values() for move in of_work]
    if len(every) < LEAST_CEILINGS:
        return None
    by_work = {work: _alike(of_work) for work, of_work in moves.items() if len(of_work) >= LEAST_ALIKE}
    by = float(np.median(every))
    spread = 1.4826 * float(np.median(np.abs(np.array(every) - by)))
    return Shift(by, 2 * 1.2533 * spread / len(every) ** 0.5, len(every), by_work)


def _alike(moves: Sequence[float]) -> Shift:
    """What ceilings of one kind did: so few may agree by chance, which Student's t allows for."""
    error = student(len(moves) - 1, 0.95) * float(np.std(moves, ddof=1)) / len(moves) ** 0.5
    return Shift(float(np.median(moves)), error, len(moves))


def case_of(row: Measurement) -> CaseKey:
    """What a row measured; in older files, which name no threads, all of them computed."""
    threads = row.threads_asked or "all"
    return CaseKey(row.sweep, row.operator, row.implementation, row.parameters, row.cache, threads)


def bound_of(row: Measurement, ceilings: Ceilings) -> Bound:
    """What limits a row that is compared with these ceilings."""
    if row.role != "measurement":
        return "memory" if row.flop == 0 and row.byte > 0 else "core"
    if row.cache != "cold" or row.median_s is None:
        return "core"
    roof = calibrated_row(row, ceilings)
    if roof is None or roof.bound_by != "memory" or row.median_s > NEAR_ROOF * roof.seconds:
        return "core"
    without_memory = calibrated(row.flop, 0.0, 0.0, row.arithmetic, row.dtype, ceilings)
    assert without_memory is not None
    return "memory" if without_memory.seconds <= HIDDEN * row.median_s else "core"


def _facts(rows: Collection[Measurement]) -> dict[str, tuple[str, ...]]:
    when = sorted(row.utc for row in rows)
    values_of: dict[str, set[str | None]] = {
        **{fact.name: {value(row, fact) for row in rows} for fact in FACTS},
        "run": {row.run_id for row in rows},
        "utc": {*when[:1], *when[-1:]},
    }
    return {name: tuple(sorted(v for v in values if v is not None)) for name, values in values_of.items()}
