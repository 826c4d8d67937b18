"""One side of a comparison: each case's newest row, with all that its run says about it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from bench.errors import UserError
from bench.judge import frame
from bench.judge.comparability import FACTS, SOFTWARE, value
from bench.judge.efficiency import OURS
from bench.judge.flags import FLAGS, SUSPECT
from bench.judge.noise import Bound, CaseStep, Noise, between_visits
from bench.model.ceilings import Ceilings
from bench.model.roofline import calibrated, calibrated_row
from bench.sampling.publish import Step

if TYPE_CHECKING:
    from bench.store.schema import Measurement

NOT_MEASURED = ("unsupported", "skipped")
"""Statuses of rows that nobody tried to time: as good as no row, but for the reason they give."""
DISTURBING = frozenset(flag.name for flag in FLAGS if flag.disturbed)
"""Flags that blame the machine."""
COVERED_BY_INTERVAL = frozenset({"noisy"})
"""Doubts that a comparison of intervals takes into account by itself: a row of +-3 % that takes 40 % longer
than before is slower."""
NEAR_ROOF = 1.25
"""Times its prediction within which a row that memory limits does run at memory's speed. Above, something
else takes the time: on a CPU the functions of activations, which the model gives no peak of their own."""
HIDDEN = 0.5
"""Share of the time of a row at memory's speed that, by prediction, launching and arithmetic take at most."""


class Case(NamedTuple):
    """What was measured."""

    sweep: str
    operator: str
    implementation: str
    parameters: str
    """As the rows have them: JSON."""
    cache: str
    threads: str
    """all | one"""


class Look(NamedTuple):
    """A case as one run saw it."""

    row: Measurement
    bound: Bound
    suspect_flags: tuple[str, ...]
    """The flags that cast doubt on its time, whatever its interval."""
    undisturbed: bool
    """Whether no neighbour, heat or quota is to blame.

    It may be noisy all the same, by what its visits differ by: to leave such rows out would be to learn how
    far a machine moves from those cases that it did not move.
    """

    @property
    def usable(self) -> bool:
        """Whether it has a time with an interval."""
        return self.row.is_timed and has_interval(self.row)


@dataclass(frozen=True)
class Run:
    """What one run measured."""

    looks: Mapping[Case, Look]
    noise: Noise
    """Between visits."""


@dataclass(frozen=True)
class Side:
    """All that one side holds."""

    looks: Mapping[Case, Look]
    """Each case's newest."""
    runs: Mapping[str, Run]
    """By run_id, those that a look of this side is from."""
    absent: Mapping[Case, str]
    """Cases that some run did not measure -> `skipped: reason`; another run may have measured them."""
    facts: Mapping[str, tuple[str, ...]]
    """Name of a fact -> its values over all looks, sorted; also `device name`, `run` and `utc` (the ends)."""
    older: int
    """Rows left aside because a later row of the same case is there."""


def side(runs: Sequence[frame.Run], name: str) -> Side:
    """From the runs of one device. UserError, with `name`, if there is none or they are of several."""
    devices = sorted({run.device for run in runs})
    if not devices:
        raise UserError(f"{name} holds no row")
    if len(devices) > 1:
        raise UserError(f"{name} holds rows of {len(devices)} devices, name one's: {', '.join(devices)}")
    seen = {run.run_id: list(_looks(run)) for run in runs}
    # Where `visit` is not 0, an older file holds the second visit to a ceiling.
    once = [look for looks in seen.values() for look in looks if not look.row.visit]
    # What was imported is never newer than what was measured.
    once.sort(key=lambda look: (look.row.source is None, look.row.utc))
    newest = {case_of(look.row): look for look in once}
    used = {look.row.run_id for look in newest.values()}
    return Side(
        looks=newest,
        runs={run_id: _run(looks) for run_id, looks in sorted(seen.items()) if run_id in used},
        absent={
            case_of(row): f"{row.status}: {row.reason}"
            for run in runs
            for row in run.rows
            if row.status in NOT_MEASURED
        },
        facts=_facts([look.row for look in newest.values()]),
        older=len(once) - len(newest),
    )


def _looks(run: frame.Run) -> Iterator[Look]:
    for row, flags, bound in zip(run.rows, run.flags, bounds(run), strict=True):
        if row.status not in NOT_MEASURED:
            suspect_flags = tuple(name for name in flags if name in SUSPECT - COVERED_BY_INTERVAL)
            yield Look(row, bound, suspect_flags, not DISTURBING.intersection(flags))


def between_runs(before: Run, after: Run) -> Noise:
    """What the same ceilings differ by in two runs; unknown unless both had the same libraries and driver."""
    moves = []
    for case in before.looks.keys() & after.looks.keys():
        one, other = before.looks[case], after.looks[case]
        ours = case.implementation.startswith(OURS)
        if ours or one.row.role == "measurement" or not (one.usable and other.usable):
            continue
        if any(value(one.row, fact) != value(other.row, fact) for fact in SOFTWARE):
            return Noise()
        assert one.row.median_s and other.row.median_s
        by = abs(math.log(other.row.median_s / one.row.median_s))
        moves.append(CaseStep(one.bound, Step(by, one.undisturbed and other.undisturbed)))
    return Noise.seen(moves)


def _run(looks: list[Look]) -> Run:
    visits: dict[Case, list[Look]] = defaultdict(list)
    for look in looks:
        if look.usable:
            visits[case_of(look.row)].append(look)
    moves = [
        CaseStep(found[0].bound, Step(by, all(look.undisturbed for look in found)))
        for found in visits.values()
        for by in between_visits(look.row for look in found)
    ]
    return Run({case_of(look.row): look for look in looks if not look.row.visit}, Noise.seen(moves))


def has_interval(row: Measurement) -> bool:
    """Whether the row has a time and the 95 % interval about it."""
    if row.low_s is None or row.median_s is None or row.high_s is None:
        return False
    return 0 < row.low_s <= row.median_s <= row.high_s < math.inf


def case_of(row: Measurement) -> Case:
    """What a row measured; in older files, which name no threads, all of them computed."""
    threads = row.threads_asked or "all"
    return Case(row.sweep, row.operator, row.implementation, row.parameters, row.cache, threads)


def bounds(run: frame.Run) -> list[Bound]:
    """Whose speed the time of each row of a run follows."""
    return [_bound(row, run.roof_of(row)) for row in run.rows]


def _bound(row: Measurement, ceilings: Ceilings) -> Bound:
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
    found: dict[str, set[str]] = defaultdict(set)
    for fact in FACTS:
        found[fact.name] = {one for row in rows if (one := value(row, fact)) is not None}
    found["device name"] = {row.device_name for row in rows}
    found["run"] = {row.run_id for row in rows}
    when = sorted(row.utc for row in rows)
    found["utc"] = {*when[:1], *when[-1:]}
    return {name: tuple(sorted(values)) for name, values in found.items()}
