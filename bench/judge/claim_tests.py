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
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bench.judge.claim_rows import FLAT, holds, selected
from bench.judge.frame import parameter_names
from bench.model.quantization import forced_tile, tiles, waves
from bench.sampling.publish import student
from bench.store.schema import RunKey
from bench.sweep.claims import Bound, Claim, Jumps, Knee, Pair, Ratio, Share, Slope, Spread

if TYPE_CHECKING:
    import pandas as pd

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
    """One observation."""

    value: float
    """ln of a ratio; of a slope the exponent; of a share 0 or 1."""
    half: float
    """Half of its own 95 % interval."""
    cluster: Hashable
    keys: tuple[str, ...] = ()
    """The cases it is made of, in the order in which they are compared."""
    down: float = 0.0
    up: float = 0.0
    """How far below and above its value all observations may be wrong together, in the unit of `value`."""
    half_to: float = 0.0
    """Half of the interval of the row that all observations of the cluster share, which is not in `half`."""


def observed(name: str, test: Any, rows: pd.DataFrame) -> list[Seen]:
    """The observations of a test, by its name, among rows whose times count."""
    needed = [name for key in ("x", "over", "per", "y") for name in getattr(test, key, "").split("=") if name]
    needed += test.pairing.columns if isinstance(test, Ratio) else []
    if counts_memory(test) and "peak_byte" in rows:
        rows = rows[rows["peak_byte"] > 0].assign(run_half=0.0)
    if rows.empty or any(column not in rows for column in needed):
        return []
    return [seen for seen in _TESTS[name](rows, test) if math.isfinite(seen.value)]


def both_sides(claim: Claim, rows: pd.DataFrame) -> tuple[list[Seen], list[Seen]]:
    """(observations of a claim's test, those of the ratio that it is `less`) among rows whose times count."""
    name, test = claim.test
    held = selected(rows, claim.where)
    less = test.less if isinstance(test, Ratio) else None
    return observed(name, test, held), observed(name, less, held) if less else []


def counts_memory(test: Any) -> bool:
    """Whether it is about memory, which is counted and not timed."""
    return (isinstance(test, Ratio) and test.y == "peak_byte") or (
        isinstance(test, Slope) and test.of == "peak_byte"
    )


def cluster_count(test: Any, seen: Sequence[Seen], against: Sequence[Seen]) -> int:
    """How many clusters an effect would rest on: with `less`, the fewer of the two ratios'."""
    counts = [len({each.cluster for each in side}) for side in (seen, against)]
    return min(counts) if getattr(test, "less", None) is not None else counts[0]


def _lines(rows: pd.DataFrame, moving: Collection[str]) -> Iterator[tuple[Hashable, pd.DataFrame]]:
    """(cluster, rows) of two rows or more that are alike in all but these columns."""
    columns = [name for name in (*ALIKE, *parameter_names(rows)) if name not in moving]
    for key, line in rows.groupby(columns, dropna=False, sort=False):
        if len(line) > 1:  # of sizes drawn at random most have no others beside them
            # Without the run: several runs of a line are one cluster.
            yield tuple(map(str, key[len(RunKey._fields) :])), line


def _ratio(rows: pd.DataFrame, test: Ratio) -> Iterator[Seen]:
    pairing = test.pairing
    moving = {*test.of, *test.to, *pairing.columns}
    alike = [name for name in (*ALIKE, *parameter_names(rows)) if name not in moving]
    # By a column that is the same in all rows none has to be compared.
    alike = [name for name in alike if _differs(rows[name].to_numpy())] or alike[:1]
    kept = rows[[*alike, *pairing.columns, "key", "run_half"]]
    kept = kept.assign(log=np.log(rows[test.y].astype(float) / (rows[test.per] if test.per else 1.0)))
    above, below = kept[holds(rows, test.of)], kept[holds(rows, test.to)]
    if pairing.how == "times":
        for column in pairing.columns:
            below = below.assign(**{column: below[column] * pairing.factor})
        alike += pairing.columns
    if pairing.how == "swap":
        first, second = pairing.columns
        above = above[above[first] > above[second]]  # the other of each two is the same pair
        below = below.rename(columns={first: second, second: first})
        alike += pairing.columns
    if pairing.how == "nearest":  # of each case in a run the nearest counts, whichever of its rows
        case = [*(name for name in RunKey._fields if name in alike), "key"]
        above = above.assign(row=above.groupby(case).ngroup())
    if pairing.how == "within":
        pairs = _within(above, below, alike, pairing)
    else:
        pairs = above.merge(below, on=alike, suffixes=("", "_to"))
    pairs = pairs[pairs["key"] != pairs["key_to"]]
    if pairing.how == "nearest" and len(pairs):
        column = pairing.columns[0]
        far = (np.log(pairs[column]) - np.log(pairs[f"{column}_to"])).abs()
        pairs = pairs[far <= far.groupby(pairs["row"]).transform("min") * (1 + 1e-9)]
    keys, keys_to = pairs["key"].tolist(), pairs["key_to"].tolist()
    log, half, half_to = (
        each.tolist() for each in (pairs["log"] - pairs["log_to"], pairs["run_half"], pairs["run_half_to"])
    )
    for value, own, key, to, others in zip(log, half, keys, keys_to, half_to, strict=True):
        yield Seen(value, own, to, (key, to), half_to=others)


def _differs(values: npt.NDArray[Any]) -> bool:
    return bool((values != values[0]).any())


def _within(above: pd.DataFrame, below: pd.DataFrame, alike: Sequence[str], pairing: Pair) -> pd.DataFrame:
    """Each row above with the nearest one below: the least of the largest difference of all columns."""
    import pandas as pd
    from scipy.spatial import cKDTree

    columns = list(pairing.columns)
    above, below = (side[(side[columns] > 0).all(axis=1)] for side in (above, below))
    reach = math.log(pairing.factor) * (1 + 1e-9)
    groups = pd.concat([above, below]).groupby(list(alike), dropna=False).ngroup().to_numpy()
    of, to = groups[: len(above)], groups[len(above) :]
    parts = [above.iloc[:0].join(below.iloc[:0].add_suffix("_to"))]
    for group in np.intersect1d(of, to):
        ours, others = above[of == group], below[to == group]
        places = np.log(others[columns].to_numpy(float))
        far, at = cKDTree(places).query(np.log(ours[columns].to_numpy(float)), p=math.inf)
        near = others.iloc[at].add_suffix("_to").set_index(ours.index)
        parts.append(ours.join(near)[far <= reach])
    return pd.concat(parts)


def _slope(rows: pd.DataFrame, test: Slope) -> Iterator[Seen]:
    rows = rows[rows[test.of] > 0]
    along = test.columns[0]
    for cluster, line in _lines(rows, test.columns):
        if line[along].max() >= SPAN * line[along].min():
            x, y = (np.log(line[name].to_numpy(float)) for name in (along, test.of))
            x -= x.mean()
            width = float((x**2).sum())
            exponent = float((x * y).sum()) / width
            half = math.sqrt(float(((x * line["run_half"].to_numpy()) ** 2).sum())) / width
            if test.of == "rest_share":  # of a few calls, whose noise no row knows: its points scatter by it
                apart, freedom = float(((y - y.mean() - exponent * x) ** 2).sum()), len(line) - 2
                half = student(freedom, 0.95) * math.sqrt(apart / freedom / width) if freedom else math.inf
            yield Seen(exponent, half, cluster, tuple(line["key"]))


def _spread(rows: pd.DataFrame, test: Spread) -> Iterator[Seen]:
    alike = [name for name in ALIKE if name not in (*RunKey._fields, test.over)]
    values = rows.groupby(alike, dropna=False)[test.over].transform("nunique")
    for cluster, line in _lines(rows.assign(values=values), {test.over}):
        best = line.sort_values("median_s").drop_duplicates(test.over)
        # Without one of its rows a line has a smaller spread than the others.
        if len(best) == line["values"].iloc[0] > 1:
            points = _points(best)
            of = _over(points[-1], points[0], cluster, points)
            yield of._replace(down=_chance(best) + _chance(best.iloc[::-1]))


def _chance(ranked: pd.DataFrame) -> float:
    """Mean distance, |ln|, by which noise alone takes the first of these rows beyond its true time.

    Those whose intervals reach its time may truly be as quick, or as slow, as it is. Of so many normal
    deviations the greatest is taken as Blom (1958) approximates it. 0 for rows without intervals.
    """
    logs, half = np.log(ranked["median_s"].to_numpy()), ranked["run_half"].to_numpy()
    tied = half[np.abs(logs - logs[0]) <= np.hypot(half, half[0])]
    if not len(tied):
        return 0.0
    deviations = NormalDist().inv_cdf((len(tied) - 3 / 8) / (len(tied) + 1 / 4))
    return deviations * math.sqrt(float((tied**2).mean())) / NORMAL


class _Point(NamedTuple):
    median_s: float
    run_half: float
    key: str


def _points(line: pd.DataFrame) -> list[_Point]:
    return [_Point(*row) for row in zip(*(line[name] for name in _Point._fields), strict=True)]


def _over(above: _Point, below: _Point, cluster: Hashable, of: Sequence[_Point]) -> Seen:
    value = math.log(above.median_s / below.median_s)
    return Seen(value, math.hypot(above.run_half, below.run_half), cluster, tuple(point.key for point in of))


def _bound(rows: pd.DataFrame, test: Bound) -> Iterator[Seen]:
    rows = rows[rows[f"{test.by}_s"] > 0]
    logs = np.log(rows["median_s"] / rows[f"{test.by}_s"])
    # A formula has no interval of its own. Roofs are visited at other times than rows, and move with the run.
    down, up = (np.hypot(rows.get(f"{test.by}_{side}", 0.0), rows["shared"]) for side in ("down", "up"))
    yield from map(Seen, logs, rows["run_half"], rows["key"], zip(rows["key"]), down, up)


def _jumps(rows: pd.DataFrame, test: Jumps) -> Iterator[Seen]:
    for cluster, line in _lines(rows, {test.x}):
        line = line.sort_values(test.x).drop_duplicates(test.x)
        needed = {"implementation", test.x, "m", "n", "sm_count"} & {*line}
        columns = [_column(row, test) for row in line[sorted(needed)].to_dict("records")]
        if None in columns:
            continue
        parts: dict[int | None, list[_Point]] = defaultdict(list)
        for column, point in zip(columns, _points(line), strict=True):
            parts[column].append(point)
        if test.of == "within":
            for column, part in parts.items():
                if len(part) >= COLUMN:
                    yield _over(part[-1], part[0], (cluster, column), part)
        else:
            for (before, part), (after, following) in itertools.pairwise(parts.items()):
                if before is not None and after == before + 1:
                    yield _over(following[0], part[-1], (cluster, after), (part[-1], following[0]))


def _column(row: Mapping[Hashable, Any], test: Jumps) -> int | None:
    """Number of the column of tiles, or of the wave, that a row is in; None if its tile is not known."""
    if isinstance(test.every, int):
        return math.ceil(float(row[test.x]) / test.every)
    tile = forced_tile(row["implementation"])
    if tile is None or test.x not in ("m", "n"):
        return None
    if test.every == "wave":
        return waves(tiles(int(row["m"]), int(row["n"]), *tile), int(row["sm_count"]))
    return math.ceil(float(row[test.x]) / tile["mn".index(test.x)])


def _knee(rows: pd.DataFrame, test: Knee) -> Iterator[Seen]:
    for cluster, line in _lines(rows, {test.x}):
        ridge = float(line["ridge"].median())
        flat, steep = line[line[test.x] <= FLAT * ridge], line[line[test.x] >= STEEP * ridge]
        if len(flat) > 1 and len(steep) > 1:
            knee = flat["median_s"].median() / (steep["median_s"] / steep[test.x]).median()
            half = math.hypot(flat["run_half"].max(), steep["run_half"].max())
            # The run may have had slow memory, and not slow arithmetic.
            down = up = math.hypot(flat["shared"].max(), steep["shared"].max())
            if isinstance(test.to, str):  # slower memory moves the ridge up, slower arithmetic down
                of = line[["memory_down", "memory_up", "compute_down", "compute_up"]].median()
                down = math.hypot(down, of["memory_down"], of["compute_up"])
                up = math.hypot(up, of["memory_up"], of["compute_down"])
            where = ridge if isinstance(test.to, str) else test.to
            yield Seen(math.log(knee / where), half, cluster, (*flat["key"], *steep["key"]), down, up)


def _share(rows: pd.DataFrame, test: Share) -> Iterator[Seen]:
    holds = rows.index.isin(selected(rows, test.of).index)
    yield from map(Seen, holds.astype(float), np.zeros(len(rows)), rows["key"], zip(rows["key"]))


_TESTS: Mapping[str, Callable[[Any, Any], Iterator[Seen]]] = {
    "ratio": _ratio, "slope": _slope, "spread": _spread, "bound": _bound, "jumps": _jumps, "knee": _knee,
    "share": _share,
}  # fmt: skip
