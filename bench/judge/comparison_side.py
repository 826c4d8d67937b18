"""One side of a comparison: each case's newest row, with all that its run says about it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from bench.judge.comparability import BLOCKING, SOFTWARE, TOLD, value
from bench.judge.efficiency import OURS
from bench.judge.flags import DOUBTFUL, FLAGS, flags
from bench.judge.wander import Bound, Moved, Wander, between_visits
from bench.model.ceilings import Ceilings, by_run, manner
from bench.model.ceilings import rows as ceiling_rows
from bench.model.roofline import calibrated_columns, traffic

if TYPE_CHECKING:
    import pandas as pd

    from bench.store.schema import Measurement

NOT_MEASURED = ("unsupported", "skipped")
"""Statuses of rows that nobody tried to time: as good as no row, but for the reason they give."""
DISTURBING = frozenset(flag.name for flag in FLAGS if flag.disturbed)
"""Flags that blame the machine."""
TOLD_BY_INTERVAL = frozenset({"noisy"})
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
    doubts: tuple[str, ...]
    """The flags that cast doubt on its time, whatever its interval."""
    undisturbed: bool
    """Whether no neighbour, heat or quota is to blame.

    It may be noisy all the same, by what its visits differ by: to leave such rows out would be to learn how
    far a machine moves from those cases that it did not move.
    """

    @property
    def usable(self) -> bool:
        """Whether it has a time with an interval."""
        return self.row.status == "ok" and has_interval(self.row)


@dataclass(frozen=True)
class Run:
    """What one run measured."""

    looks: Mapping[Case, Look]
    wander: Wander
    """From visit to visit."""


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


def side(frame: pd.DataFrame, name: str) -> Side:
    """From a frame of `parquet.read`. ValueError, with `name`, if it is empty or of several devices."""
    devices = sorted(set(frame["device"]))
    if not devices:
        raise ValueError(f"{name} holds no row")
    if len(devices) > 1:
        raise ValueError(f"{name} holds rows of {len(devices)} devices, name one's: {', '.join(devices)}")
    tried = ~frame["status"].isin(NOT_MEASURED)
    roofs = by_run(ceiling_rows(frame))
    seen: dict[str, list[Look]] = defaultdict(list)
    manners = [manner(*how) for how in zip(frame["cache"], frame["threads_asked"], strict=True)]
    for (run_id, how), some in frame.assign(manner=manners)[tried].groupby(["run_id", "manner"], sort=False):
        ceilings = roofs.get((devices[0], str(run_id), str(how)), Ceilings())
        for row, bound in zip(_rows(some), bounds(some, ceilings), strict=True):
            raised = flags(row, ceilings)
            doubts = tuple(name for name in raised if name in DOUBTFUL - TOLD_BY_INTERVAL)
            seen[str(run_id)].append(Look(row, bound, doubts, not DISTURBING.intersection(raised)))
    # What was imported is never newer than what was measured.
    every = sorted((look for looks in seen.values() for look in looks), key=lambda one: _age(one.row))
    once = [look for look in every if not look.row.visit]  # else an older file's second visit to a ceiling
    newest = {_case(look.row): look for look in once}
    used = {look.row.run_id for look in newest.values()}
    return Side(
        looks=newest,
        runs={run_id: _run(looks) for run_id, looks in sorted(seen.items()) if run_id in used},
        absent={_case(row): f"{row.status}: {row.reason}" for row in _rows(frame[~tried])},
        facts=_facts([look.row for look in newest.values()]),
        older=len(once) - len(newest),
    )


def between_runs(before: Run, after: Run) -> Wander:
    """What the same ceilings differ by in two runs; unknown unless both had the same libraries and driver."""
    moves = []
    for case in before.looks.keys() & after.looks.keys():
        one, other = before.looks[case], after.looks[case]
        ours = case.implementation.startswith(OURS)
        if ours or one.row.role == "measurement" or not (one.usable and other.usable):
            continue
        if any(value(one.row, fact) != value(other.row, fact) for fact in SOFTWARE):
            return Wander()
        assert one.row.median_s and other.row.median_s
        by = abs(math.log(other.row.median_s / one.row.median_s))
        moves.append(Moved(one.bound, one.undisturbed and other.undisturbed, by))
    return Wander.seen(moves)


def _run(looks: list[Look]) -> Run:
    visits: dict[Case, list[Look]] = defaultdict(list)
    for look in looks:
        if look.usable:
            visits[_case(look.row)].append(look)
    moves = [
        Moved(found[0].bound, all(look.undisturbed for look in found), by)
        for found in visits.values()
        for by in between_visits(look.row for look in found)
    ]
    return Run({_case(look.row): look for look in looks if not look.row.visit}, Wander.seen(moves))


def has_interval(row: Measurement) -> bool:
    """Whether the row has a time and the 95 % interval about it."""
    ends = (row.low_s, row.median_s, row.high_s)
    if any(end is None or not math.isfinite(end) for end in ends):
        return False
    low_s, median_s, high_s = cast("tuple[float, float, float]", ends)
    return 0 < low_s <= median_s <= high_s


def _rows(frame: pd.DataFrame) -> Iterable[Measurement]:
    return cast("Iterable[Measurement]", frame.itertuples(index=False, name="Row"))


def _age(row: Measurement) -> tuple[bool, str]:
    return not isinstance(row.source, str), row.utc


def _case(row: Measurement) -> Case:
    threads = row.threads_asked if isinstance(row.threads_asked, str) else "all"
    return Case(row.sweep, row.operator, row.implementation, row.parameters, row.cache, threads)


def bounds(frame: pd.DataFrame, ceilings: Ceilings) -> list[Bound]:
    """Whose speed each row's time follows. The rows are of one run and one manner, the ceilings theirs."""
    written = frame["moved_written"].fillna(frame["byte_written"])
    moved = traffic(frame["byte_moved"], frame["byte_again"].fillna(0), written, frame["cache_byte"])
    units, dtypes = frame["arithmetic"], frame["dtype"]
    predicted_s, limiter = calibrated_columns(frame["flop"], *moved, units, dtypes, ceilings)
    nothing = np.zeros(len(frame))
    without_memory_s, _ = calibrated_columns(frame["flop"], nothing, nothing, units, dtypes, ceilings)
    took_s = frame["median_s"].to_numpy(dtype=np.float64)
    near = (took_s <= NEAR_ROOF * predicted_s) & (without_memory_s <= HIDDEN * took_s)
    memory = (limiter == "memory") & near & (frame["cache"] == "cold").to_numpy()
    ceiling = (frame["role"] != "measurement").to_numpy()
    passes = ((frame["flop"] == 0) & (frame["byte"] > 0)).to_numpy()
    return ["memory" if one else "core" for one in np.where(ceiling, passes, memory)]


def _facts(rows: Collection[Measurement]) -> dict[str, tuple[str, ...]]:
    found: dict[str, set[str]] = defaultdict(set)
    for fact in (*BLOCKING, *TOLD):
        found[fact.name] = {one for row in rows if (one := value(row, fact)) is not None}
    found["device name"] = {row.device_name for row in rows}
    found["run"] = {row.run_id for row in rows}
    when = sorted(row.utc for row in rows)
    found["utc"] = {*when[:1], *when[-1:]}
    return {name: tuple(sorted(values)) for name, values in found.items()}
