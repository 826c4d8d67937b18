"""The tests of claims: from rows to observations, of which `bench.judge.claim_lines` makes lines.

An observation is a pair of rows, a line of rows or a row. Those of one cluster (a row that several are
compared with; a line; the same case in several runs) are no independent evidence: together they are one line.
What several rows of an observation are wrong by together is told apart (`down`, `up`): how far off the roof
may be, where rows are compared with one, and what noise alone adds to the slowest over the quickest of
several rows.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bench.errors import UserError
from bench.judge.claim_rows import FLAT, ROOF_ERRORS, holds
from bench.judge.columns import Bools, Columns, Floats, Places
from bench.model.quantization import forced_tile, tiles, waves
from bench.sampling.publish import student
from bench.store.schema import RunKey
from bench.sweep.claims import Bound, Claim, Jumps, Knee, Pair, Ratio, Share, Slope, Spread

ALIKE = (*RunKey._fields, "implementation", "cache", "threads_asked", "dtype")
"""Columns, in addition to the parameters, in which compared rows agree, unless the test itself names them."""
COLUMN = 3
"""Points that a column of tiles has at least."""
SPAN = 2.0
"""The greatest x of a line over its least, at least: the exponent between neighbours is mostly noise."""
STEEP = 2.0
"""Times the ridge from which arithmetic is taken to be the only limit."""
NORMAL = 1.959964
"""Standard deviations of the normal distribution within which 95 % lie."""


class Seen(NamedTuple):
    """Observations, one after the other: arrays of one length n, but for `rows`."""

    value: Floats
    """ln of a ratio; of a slope the exponent; of a share 0 or 1."""
    half: Floats
    """Half of its own 95 % interval."""
    cluster: Places
    """Equal in observations of one cluster."""
    rows: Places
    """The places of the rows that they are made of, in the order in which these are compared ..."""
    counts: Places
    """... and how many of them are each observation's."""
    down: Floats
    up: Floats
    """How far below and above its value all observations may be wrong together, in the unit of `value`."""
    half_to: Floats
    """Half of the interval of the row that all observations of the cluster share, which is not in `half`."""

    def split(self, values: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
        """Values of all rows, such as their cases -> those of the rows of each observation."""
        return np.split(values[self.rows], np.cumsum(self.counts)[:-1]) if len(self.counts) else []


def observed(name: str, test: Any, rows: Columns, at: Places) -> Seen:
    """The observations of a test, by its name, among the rows at these places, whose times count."""
    needed = [name for key in ("x", "over", "per", "y") for name in getattr(test, key, "").split("=") if name]
    needed += test.pairing.columns if isinstance(test, Ratio) else []
    if counts_memory(test) and "peak_byte" in rows:
        at = at[rows.floats("peak_byte")[at] > 0]
        rows = rows.changed({"run_half": np.zeros(rows.count)})
    if not len(at) or any(column not in rows for column in needed):
        return _seen([])
    found = _TESTS[name](rows, at, test)
    seen = found if isinstance(found, Seen) else _of_lines(found)
    known = np.isfinite(seen.value)
    if known.all():
        return seen
    of_rows = np.repeat(known, seen.counts)
    return Seen(*(each[of_rows if name == "rows" else known] for name, each in seen._asdict().items()))


def both_sides(claim: Claim, rows: Columns, sound: Bools | None = None) -> tuple[Seen, Seen]:
    """(observations of a claim's test, those of the ratio that it is `less`) among rows whose times count."""
    name, test = claim.test
    held = holds(rows, claim.where)
    at = np.flatnonzero(held if sound is None else held & sound)
    less = test.less if isinstance(test, Ratio) else None
    return observed(name, test, rows, at), observed(name, less, rows, at) if less else _seen([])


def counts_memory(test: Any) -> bool:
    """Whether it is about memory, which is counted and not timed."""
    return "peak_byte" in (getattr(test, "y", ""), getattr(test, "of", ""))


def cluster_count(test: Any, seen: Seen, against: Seen) -> int:
    """How many clusters an effect would rest on: with `less`, the fewer of the two ratios'."""
    counts = [len(np.unique(each.cluster)) for each in (seen, against)]
    return min(counts) if getattr(test, "less", None) is not None else counts[0]


def _seen(
    value: npt.ArrayLike,
    half: npt.ArrayLike = 0.0,
    cluster: npt.ArrayLike = (),
    rows: npt.ArrayLike = (),
    counts: npt.ArrayLike = 1,
    down: npt.ArrayLike = 0.0,
    up: npt.ArrayLike = 0.0,
    half_to: npt.ArrayLike = 0.0,
) -> Seen:
    """Observations of these numbers, each an array or the same for all."""
    values = np.asarray(value, dtype=np.float64)
    half, down, up, half_to = (np.full_like(values, each) for each in (half, down, up, half_to))
    cluster, rows, counts = (np.asarray(each, dtype=np.intp) for each in (cluster, rows, counts))
    return Seen(values, half, cluster, rows, np.full(len(values), counts), down, up, half_to)


class _Line(NamedTuple):
    """The observation of a line."""

    value: float
    half: float
    cluster: Hashable
    rows: Places
    down: float = 0.0
    up: float = 0.0


def _of_lines(found: Iterable[_Line]) -> Seen:
    lines = list(found)
    if not lines:
        return _seen([])
    value, half, cluster, rows, down, up = zip(*lines, strict=True)
    number: dict[Hashable, int] = {}
    clusters = [number.setdefault(each, len(number)) for each in cluster]
    return _seen(value, half, clusters, np.concatenate(rows), [len(each) for each in rows], down, up)


def _lines(rows: Columns, at: Places, moving: Collection[str]) -> Iterator[tuple[int, Places]]:
    """(cluster, places) of two rows or more that are alike in all but these columns."""
    columns = [name for name in (*ALIKE, *rows.parameters) if name not in moving]
    line = rows.numbered(columns, at)
    # Without the run: several runs of a line are one cluster.
    cluster = rows.numbered([name for name in columns if name not in RunKey._fields], at)
    several = np.flatnonzero(np.bincount(line)[line] > 1)  # of sizes drawn at random most are alone
    for places in _groups(several, line):
        yield int(cluster[places[0]]), at[places]


def _ratio(rows: Columns, at: Places, test: Ratio) -> Seen:
    pairing = test.pairing
    moving = {*test.of, *test.to, *pairing.columns}
    of, to = holds(rows, test.of), holds(rows, test.to)
    at = at[(of | to)[at]]
    if not (of[at].any() and to[at].any()):
        return _seen([])
    alike = np.zeros(rows.count, dtype=np.intp)
    alike[at] = rows.numbered([name for name in (*ALIKE, *rows.parameters) if name not in moving], at)
    above, below = at[of[at]], at[to[at]]
    if pairing.how == "within":
        first, second = _within(rows, alike, above, below, pairing)
    elif pairing.how == "nearest":
        if (of & to)[at].any():
            raise UserError("a claim pairs what is nearest: give `of` and `to` that no row is in both of")
        first, second = _nearest(rows.floats(pairing.columns[0]), alike, above, below)
    else:
        first, second = _equal(rows, alike, above, below, pairing)
    key, _ = rows.numbers("key")
    others = key[first] != key[second]
    first, second = first[others], second[others]
    y, half = rows.floats(test.y), rows.floats("run_half")
    per = rows.floats(test.per) if test.per else np.ones(rows.count)
    both = np.stack([first, second], axis=1).ravel()
    value = np.log(y[first] / per[first]) - np.log(y[second] / per[second])
    return _seen(value, half[first], rows.numbered(["key"], second), both, 2, half_to=half[second])


def _equal(
    rows: Columns, alike: Places, above: Places, below: Places, pairing: Pair
) -> tuple[Places, Places]:
    """The pairs of rows that are alike, and as the pairing says by its columns."""
    theirs = pairing.columns
    if pairing.how == "swap":
        one, other = (rows[name] for name in pairing.columns)
        above = above[one[above] > other[above]]  # the other of each two is the same pair
        theirs = theirs[::-1]
    ours, others = alike[above], alike[below]
    for our, their in zip(pairing.columns, theirs, strict=True):
        values = np.concatenate([rows[our][above], rows[their][below] * pairing.factor])
        number = np.unique(values, return_inverse=True)[1]
        ours, others = (
            each * len(values) + of
            for each, of in ((ours, number[: len(above)]), (others, number[len(above) :]))
        )
    first, second = _matched(ours, others)
    return above[first], below[second]


def _matched(above: Places, below: Places) -> tuple[Places, Places]:
    """The places of the equal numbers of both, those of the first in their order."""
    order = np.argsort(below, kind="stable")
    begin, end = (np.searchsorted(below[order], above, side) for side in ("left", "right"))
    count = end - begin
    within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    return np.repeat(np.arange(len(above)), count), order[np.repeat(begin, count) + within]


def _nearest(values: Floats, alike: Places, above: Places, below: Places) -> tuple[Places, Places]:
    """Each row above with those below whose value is nearest, as a ratio; no row may be on both sides.

    Of each line only the values next below and next above are looked at: a line may have thousands.
    """
    distinct, rank = np.unique(values[np.append(above, below)], return_inverse=True)
    number = alike[np.append(above, below)] * len(distinct) + rank  # ascends with the value in each line
    ours, others = number[: len(above)], number[len(above) :]
    there = np.unique(others)
    next_above = np.searchsorted(there, ours)
    near = there[np.stack([next_above - 1, next_above]).clip(0, len(there) - 1)]
    with np.errstate(divide="ignore", invalid="ignore"):
        far = np.abs(np.log(distinct[near % len(distinct)]) - np.log(values[above]))
    far[near // len(distinct) != alike[above]] = math.nan
    is_near = far <= np.fmin(*far) * (1 + 1e-9)
    is_near[1] &= ~is_near[0] | (near[0] != near[1])
    row, side = np.nonzero(is_near.T)
    first, second = _matched(near[side, row], others)
    return above[row[first]], below[second]


def _within(
    rows: Columns, alike: Places, above: Places, below: Places, pairing: Pair
) -> tuple[Places, Places]:
    """Each row above with the nearest one below: the least of the largest difference of all columns."""
    from scipy.spatial import cKDTree

    sizes = np.stack([rows.floats(name) for name in pairing.columns], axis=1)
    above, below = (side[(sizes[side] > 0).all(axis=1)] for side in (above, below))
    reach = math.log(pairing.factor) * (1 + 1e-9)
    others = {int(alike[places[0]]): places for places in _groups(below, alike)}
    pairs = [(above[:0], below[:0])]
    for ours in _groups(above, alike):
        if (near := others.get(int(alike[ours[0]]))) is not None:
            far, which = cKDTree(np.log(sizes[near])).query(np.log(sizes[ours]), p=math.inf)
            pairs.append((ours[far <= reach], near[which][far <= reach]))
    first, second = (np.concatenate(each) for each in zip(*pairs, strict=True))
    return first, second


def _groups(places: Places, number: Places) -> list[Places]:
    """The places that have each number, in its order."""
    order = places[np.argsort(number[places], kind="stable")]
    return np.split(order, np.flatnonzero(np.diff(number[order])) + 1) if len(order) else []


def _slope(rows: Columns, at: Places, test: Slope) -> Iterator[_Line]:
    of, along = rows.floats(test.of), rows.floats(test.columns[0])
    halves = rows.floats("run_half")
    for cluster, line in _lines(rows, at[of[at] > 0], test.columns):
        if along[line].max() >= SPAN * along[line].min():
            x, y = np.log(along[line]), np.log(of[line])
            x -= x.mean()
            width = float((x**2).sum())
            exponent = float((x * y).sum()) / width
            half = math.sqrt(float(((x * halves[line]) ** 2).sum())) / width
            if test.of == "rest_share":  # of a few calls, whose noise no row knows: points scatter by it
                apart, freedom = float(((y - y.mean() - exponent * x) ** 2).sum()), len(line) - 2
                half = student(freedom, 0.95) * math.sqrt(apart / freedom / width) if freedom else math.inf
            yield _Line(exponent, half, cluster, line)


def _spread(rows: Columns, at: Places, test: Spread) -> Iterator[_Line]:
    log_s, half = np.log(rows.floats("median_s")), rows.floats("run_half")
    over, count = rows.numbers(test.over)
    alike = rows.numbered([name for name in ALIKE if name not in (*RunKey._fields, test.over)], at)
    values = np.zeros(rows.count, dtype=np.intp)
    values[at] = np.bincount(np.unique(alike * count + over[at]) // count)[alike]
    for cluster, line in _lines(rows, at, {test.over}):
        ranked = line[np.argsort(log_s[line], kind="stable")]
        best = ranked[np.sort(np.unique(over[ranked], return_index=True)[1])]
        # Without one of its rows a line has a smaller spread than the others.
        if len(best) == values[line[0]] > 1:
            chance = sum(_chance(log_s[each], half[each]) for each in (best, best[::-1]))
            value = log_s[best[-1]] - log_s[best[0]]
            yield _Line(value, math.hypot(half[best[-1]], half[best[0]]), cluster, best, chance)


def _chance(logs: Floats, half: Floats) -> float:
    """Mean distance, |ln|, by which noise alone takes the first of these rows beyond its true time.

    Those whose intervals reach its time may truly be as quick, or as slow, as it is. Of so many normal
    deviations the greatest is taken as Blom (1958) approximates it. 0 for rows without intervals.
    """
    tied = half[np.abs(logs - logs[0]) <= np.hypot(half, half[0])]
    if not len(tied):
        return 0.0
    deviations = NormalDist().inv_cdf((len(tied) - 3 / 8) / (len(tied) + 1 / 4))
    return deviations * math.sqrt(float((tied**2).mean())) / NORMAL


def _bound(rows: Columns, at: Places, test: Bound) -> Seen:
    term_s = rows.floats(f"{test.by}_s")
    at = at[term_s[at] > 0]
    # A formula has no interval of its own. Roofs are visited at other times than rows, and move with the run.
    names = [f"{test.by}_{side}" for side in ("down", "up")]
    down, up = (np.hypot(rows[name][at] if name in rows else 0.0, rows["shared"][at]) for name in names)
    value = np.log(rows.floats("median_s")[at] / term_s[at])
    return _seen(value, rows.floats("run_half")[at], rows.numbers("key")[0][at], at, 1, down, up)


def _jumps(rows: Columns, at: Places, test: Jumps) -> Iterator[_Line]:
    log_s, half, x = np.log(rows.floats("median_s")), rows.floats("run_half"), rows.floats(test.x)

    def over(above: int, below: int, cluster: Hashable, of: Places) -> _Line:
        return _Line(log_s[above] - log_s[below], math.hypot(half[above], half[below]), cluster, of)

    for cluster, line in _lines(rows, at, {test.x}):
        line = line[np.unique(x[line], return_index=True)[1]]
        parts: dict[int, list[int]] = defaultdict(list)
        for column, place in zip(_columns(rows, line, test), line.tolist(), strict=False):
            parts[column].append(place)
        if test.of == "within":
            for column, part in parts.items():
                if len(part) >= COLUMN:
                    yield over(part[-1], part[0], (cluster, column), np.array(part))
        else:
            for (before, part), (after, following) in itertools.pairwise(parts.items()):
                if after == before + 1:
                    edge = np.array([part[-1], following[0]])
                    yield over(following[0], part[-1], (cluster, after), edge)


def _columns(rows: Columns, line: Places, test: Jumps) -> list[int]:
    """Number of the column of tiles, or of the wave, that each row is in; none if their tile is not known."""
    along = rows[test.x][line].tolist()
    if isinstance(test.every, int):
        return [math.ceil(x / test.every) for x in along]
    if (tile := forced_tile(rows["implementation"][line[:1]].tolist()[0])) is None:
        return []
    if test.every == "wave":
        sizes = zip(*(rows[name][line].tolist() for name in ("m", "n", "sm_count")), strict=True)
        return [waves(tiles(int(m), int(n), *tile), int(sms)) for m, n, sms in sizes]
    return [math.ceil(x / tile["mn".index(test.x)]) for x in along]


def _knee(rows: Columns, at: Places, test: Knee) -> Iterator[_Line]:
    x, seconds, half, shared = map(rows.floats, (test.x, "median_s", "run_half", "shared"))
    for cluster, line in _lines(rows, at, {test.x}):
        ridge = _median(rows["ridge"][line])
        flat, steep = line[x[line] <= FLAT * ridge], line[x[line] >= STEEP * ridge]
        if len(flat) > 1 and len(steep) > 1:
            knee = np.median(seconds[flat]) / np.median(seconds[steep] / x[steep])
            # The run may have had slow memory, and not slow arithmetic.
            down = up = math.hypot(shared[flat].max(), shared[steep].max())
            if isinstance(test.to, str):  # slower memory moves the ridge up, slower arithmetic down
                of = {name: _median(rows[name][line]) for name in ROOF_ERRORS}
                down = math.hypot(down, of["memory_down"], of["compute_up"])
                up = math.hypot(up, of["memory_up"], of["compute_down"])
            where = ridge if isinstance(test.to, str) else test.to
            own = math.hypot(half[flat].max(), half[steep].max())
            yield _Line(math.log(knee / where), own, cluster, np.append(flat, steep), down, up)


def _median(values: Floats) -> float:
    """That of those that are known; NaN if none is."""
    known = values[~np.isnan(values)]
    return float(np.median(known)) if len(known) else math.nan


def _share(rows: Columns, at: Places, test: Share) -> Seen:
    return _seen(holds(rows, test.of)[at], 0.0, rows.numbers("key")[0][at], at)


_TESTS: Mapping[str, Callable[[Any, Places, Any], Seen | Iterator[_Line]]] = {
    "ratio": _ratio, "slope": _slope, "spread": _spread, "bound": _bound, "jumps": _jumps, "knee": _knee,
    "share": _share,
}  # fmt: skip
