"""Predictions that are learned from timings of many GPUs: of any operator, on any GPU with a datasheet.

    t = base * exp(residual)

The base and the features of a launch are those of bench/model/launch_features.py. Extremely randomized trees
(scikit-learn) learn what others leave of it, by the same implementation: each GPU counts by how like it is to
the one that is predicted (generation, maker, kind of memory). Products are slowed down as far as that one has
less power for a unit than its relative (bench/model/reached.py). Of a GPU that has timings of the operator
itself, at most CALIBRATING of each source are designated, spread over sizes and parameters; a Gaussian
process learns what the trees leave of these. Designated rows are never scored.

An interval holds nine launches in ten. Of a GPU without timings its width comes from GPUs that were left out
in turn; of one with them from the designated rows, each left out in turn.

The bandwidth that a copy reaches is a property of a GPU and its memory, so it is looked up first: in the
largest element-wise launches that were timed there (these are never scored either), else in those of the
GPUs with such memory.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bench.model.launch_features import Vocabulary, features, near, peaks, with_parameters
from bench.model.reached import CLOCK_OF_POWER, PRODUCTS, Reached, apart, largest
from bench.model.roofline import Floats

if TYPE_CHECKING:
    import pandas as pd
    from sklearn.ensemble import ExtraTreesRegressor

    from bench.device.datasheet import Datasheet

    Forests = dict[str, tuple["_Forest", pd.DataFrame]]
    """GPU -> what the timings of all others tell of it, and what GPUs left out in turn were off by."""

CALIBRATING = 64
"""Rows of one operator, GPU and source that calibrate at most; of fewer than twice as many, a quarter."""
LEAST_ROWS = 16
"""Rows of a source from which a GPU is calibrated; with fewer it is as one without timings."""
COVERS = 0.9
"""Share of launches whose time the interval is meant to hold."""
TREES, LEAF, FEATURES_OF_A_SPLIT, ROWS_OF_A_SOURCE = 50, 2, 0.5, 500
FOLDS = 5
UNLIKE_GENERATION, UNLIKE_CACHE, UNLIKE_MEMORY, UNLIKE_MAKER = 1.0, 0.3, 0.5, 0.05
"""What a GPU counts: exp(-difference of compute capabilities), and factors for another first-level cache,
memory and maker."""
KIN: Mapping[str, Sequence[str]] = {"linear": ["gemm"]}
"""Operator -> others that it learns from too."""
FIRST_CACHED = 7
"""Major compute capability since which the first-level cache keeps what is loaded (Volta tuning guide)."""


class PooledPrediction(NamedTuple):
    """Predicted launches, each an array [n], in seconds; the interval is NaN where nothing says it."""

    seconds: Floats
    low_s: Floats
    high_s: Floats
    error: float
    """Mean |predicted / measured - 1| where GPUs, or calibrating rows, were left out in turn; else NaN."""


@dataclass(frozen=True, eq=False)
class Pool:
    """Timings of many GPUs. Rows have the columns of `launch_features.COLUMNS`, and a datasheet each."""

    rows: pd.DataFrame
    sheets: Mapping[str, Datasheet]
    """Device name -> its datasheet."""

    @cached_property
    def largest(self) -> pd.Index:
        """The rows that say what memory reaches."""
        return largest(self.rows, self.sheets)

    @cached_property
    def reached(self) -> Reached:
        """What they say of memory and power."""
        return Reached.of(self.rows, self.sheets)

    @cached_property
    def _operators(self) -> dict[tuple[str, str], OperatorPool]:
        return {}

    @cached_property
    def _forests(self) -> dict[tuple[str, str], Forests]:
        return {}

    def of(self, operator: str, implementation: str) -> OperatorPool:
        """What it knows of one operator by one implementation.

        Another implementation moves other bytes for the same work; that of a product computes the same.
        """
        known = self._operators.get((operator, implementation))
        if known is None:
            kin = self.rows["operator"].isin([operator, *KIN.get(operator, ())])
            alike = self.rows["implementation"].eq(implementation) | (operator in PRODUCTS)
            rows = with_parameters(self.rows[kin & alike])
            own = (rows["operator"] == operator) & (rows["implementation"] == implementation)
            family = operator, "" if operator in PRODUCTS else implementation
            known = OperatorPool(self, rows[own], rows, self._forests.setdefault(family, {}))
            self._operators[operator, implementation] = known
        return known


@dataclass(frozen=True, eq=False)
class OperatorPool:
    """The timings of one operator by one implementation."""

    pool: Pool
    rows: pd.DataFrame
    family: pd.DataFrame
    """Its rows, and those of the operators and implementations that it learns from too."""
    forests: Forests
    """Those that its family grows, which other implementations of a product share."""

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary of all that it learns from."""
        return Vocabulary.of(self.family)

    def own(self, wanted: Datasheet) -> pd.DataFrame:
        """The rows of this GPU."""
        return self.rows[self.rows["device_name"].isin(wanted.match)]

    def others(self, wanted: Datasheet) -> pd.DataFrame:
        """The rows of all other GPUs."""
        return self.family[~self.family["device_name"].isin(wanted.match)]

    def unseen(self, wanted: Datasheet, rows: pd.DataFrame) -> PooledPrediction | None:
        """Launches of a GPU by timings of all others. None if there are none.

        `rows` have columns of parameters; their device_name is one that the datasheet matches.
        """
        others = self.others(wanted)
        if not len(others):
            return None
        if wanted.name not in self.forests:  # runs of one GPU ask for the same
            known = self.pool.reached.without(wanted.match)
            off = self._left_out(others, known, wanted)
            self.forests[wanted.name] = _Forest.of(self, others, known, wanted), off
        forest, off = self.forests[wanted.name]
        prediction = forest.predict(rows, wanted)
        halves = {
            dtype: _quantile((of["log"].abs() / of["scale"]).to_numpy(), of["weight"].to_numpy())
            for dtype, of in off.groupby("dtype")
        }
        half = prediction.scale * rows["dtype"].map(halves).to_numpy(dtype=float)
        error = np.average(np.abs(np.expm1(off["log"])), weights=off["weight"]) if len(off) else math.nan
        return _learned(prediction.base, prediction.log, half, error)

    def calibrated(self, wanted: Datasheet, own: pd.DataFrame, rows: pd.DataFrame) -> PooledPrediction:
        """Launches of a GPU by designated rows of its own, of one source, and the timings of all others."""
        known = self.pool.reached
        others = self.others(wanted)
        if len(others):
            forest = _Forest.of(self, others, known, wanted)
            here, there = forest.predict(own, wanted), forest.predict(rows, wanted)
        else:
            here, there = (_base(self, rows_of_side, known, wanted) for rows_of_side in (own, rows))
        left = np.log(own["median_s"].to_numpy(dtype=float) / here.base) - here.log
        at, wanted_at = (_standardized(of.features, here.features, here.weights) for of in (here, there))
        log, half, error = _process(at, left, wanted_at)
        return _learned(there.base, there.log + log, half, error)

    def designated(self, wanted: Datasheet, rows: pd.DataFrame) -> pd.Index:
        """The rows of one GPU and source that calibrate: nearest to the centres of so many clusters."""
        from sklearn.cluster import KMeans

        count = CALIBRATING if len(rows) > 2 * CALIBRATING else len(rows) // 4
        bare = _base(self, rows, self.pool.reached, wanted)
        at = _standardized(bare.features, bare.features, bare.weights)
        # Equal rows give fewer clusters than requested.
        count = min(count, len(np.unique(at, axis=0)))
        distances = KMeans(count, n_init=1, random_state=0).fit(at).transform(at)
        return rows.index[np.unique(distances.argmin(axis=0))]

    def _left_out(self, rows: pd.DataFrame, known: Reached, wanted: Datasheet) -> pd.DataFrame:
        """What GPUs left out in turn were off by: log, scale, dtype, weight; no row where there is one GPU.

        Each is left out with all that resemble it more than any resembles the wanted one, and counts as it
        is like that.
        """
        import pandas as pd
        from scipy.sparse.csgraph import connected_components
        from sklearn.model_selection import GroupKFold

        rows = _some(rows)
        names = sorted(rows["device_name"].unique())
        sheets = [self.pool.sheets[name] for name in names]
        nearest = max(_like(sheet, wanted) for sheet in sheets)
        groups, of = connected_components(np.array([[_like(a, b) > nearest for a in sheets] for b in sheets]))
        if groups < 2:
            groups, of = len(names), range(len(names))
        if groups < 2:
            return pd.DataFrame(columns=["log", "scale", "dtype", "weight"])
        off = []
        folds = GroupKFold(min(FOLDS, groups))
        for learned, left_out in folds.split(
            rows, groups=rows["device_name"].map(dict(zip(names, of, strict=True)))
        ):
            unseen = rows.iloc[left_out]
            forest = _Forest.of(self, rows.iloc[learned], known.without(set(unseen["device_name"])), wanted)
            for name, of_device in unseen.groupby("device_name"):
                sheet = self.pool.sheets[str(name)]
                prediction = forest.predict(of_device, sheet)
                log = prediction.log - np.log(of_device["median_s"].to_numpy(dtype=float) / prediction.base)
                weight = _like(sheet, wanted) / len(log)
                told = {"log": log, "scale": prediction.scale, "dtype": of_device["dtype"], "weight": weight}
                off.append(pd.DataFrame(told))
        return pd.concat(off)


class _PooledResult(NamedTuple):
    """Predictions of launches [n]: base in seconds, expected log(t / base), how far the trees disagree."""

    base: Floats
    log: Floats
    scale: Floats
    """The trees' disagreement, and what is usual added to each, so that none is certain."""
    features: Floats
    """[n, k]: what tells launches of one device apart."""
    weights: Floats
    """[k]: how much each of them does."""


@dataclass(frozen=True, eq=False)
class _Forest:
    """Trees for one GPU that none of their rows is of."""

    of_operator: OperatorPool
    trees: ExtraTreesRegressor
    known: Reached
    spread: float
    """The usual disagreement of the trees, in logarithms."""

    @classmethod
    def of(cls, operator: OperatorPool, rows: pd.DataFrame, known: Reached, wanted: Datasheet) -> _Forest:
        rows = _some(rows)
        known = known.learning(rows)
        sheets = operator.pool.sheets
        at, base = _features(operator, rows, known)
        left = np.log(rows["median_s"].to_numpy(dtype=float) / base)
        counts = rows.groupby("device_name")["median_s"].transform("size")
        like = rows["device_name"].map({name: _like(sheet, wanted) for name, sheet in sheets.items()})
        weights = (like / np.sqrt(counts)).to_numpy(dtype=float)
        trees = grown(at.to_numpy(), left, weights)
        _, disagreement = _mean_and_deviation(trees, at.to_numpy())
        return cls(operator, trees, known, float(np.median(disagreement)) or 1e-9)

    def predict(self, rows: pd.DataFrame, sheet: Datasheet) -> _PooledResult:
        """Predict rows of a GPU."""
        at, base = _features(self.of_operator, rows, self.known, sheet)
        log, disagreement = _mean_and_deviation(self.trees, at.to_numpy())
        log = log + self._slowed(rows, sheet, base * np.exp(log))
        # What the trees split by, and where they end: launches alike in these are alike in what is left.
        importance = self.trees.feature_importances_
        weights = np.append(np.sqrt(importance / (importance.max() or 1.0)), 1.0)
        return _PooledResult(base, log, disagreement + self.spread, np.column_stack([at, log]), weights)

    def _slowed(self, rows: pd.DataFrame, sheet: Datasheet, seconds: Floats) -> Floats:
        """Logarithms of the factor, [n], by which power slows launches that would take these seconds."""
        kinds = list(zip(rows["operator"], rows["dtype"], strict=True))
        found = {kind: self.known.peak_shares(sheet, *kind) for kind in set(kinds)}
        share, powered = np.array([found[kind] for kind in kinds], dtype=float).reshape(-1, 2).T
        at_peak_s = rows["flop"] / peaks(rows, dict.fromkeys(rows["device_name"].unique(), sheet))
        busy = (at_peak_s / share / seconds).fillna(0.0).to_numpy()
        return np.asarray(np.log(np.maximum(1.0, share / powered * busy**CLOCK_OF_POWER)))


def grown(at: Floats, left: Floats, weights: Floats) -> ExtraTreesRegressor:
    """Extremely randomized trees that give what is left, [n], at these features, [n, k]. Deterministic."""
    # Importing it takes two seconds, more than most commands that import this module.
    from sklearn.ensemble import ExtraTreesRegressor

    trees = ExtraTreesRegressor(
        TREES, min_samples_leaf=LEAF, max_features=FEATURES_OF_A_SPLIT, random_state=0
    )
    return trees.fit(at, left, weights)


def _mean_and_deviation(forest: ExtraTreesRegressor, at: Floats) -> tuple[Floats, Floats]:
    """(mean, standard deviation) over the trees, each [n]."""
    from sklearn.utils import check_array

    checked = check_array(at, dtype=np.float32, order="C")  # once, not by each of a hundred trees
    trees = np.stack([tree.predict(checked, check_input=False) for tree in forest.estimators_])
    return trees.mean(axis=0), trees.std(axis=0)


def _base(operator: OperatorPool, rows: pd.DataFrame, known: Reached, wanted: Datasheet) -> _PooledResult:
    """Launches of a GPU of which nothing is learned."""
    at, base = _features(operator, rows, known, wanted)
    nothing, telling = np.zeros(len(rows)), at[near(at)].to_numpy(dtype=float)
    return _PooledResult(base, nothing, nothing, telling, np.ones(telling.shape[1]))


def _features(
    operator: OperatorPool, rows: pd.DataFrame, known: Reached, wanted: Datasheet | None = None
) -> tuple[pd.DataFrame, Floats]:
    sheets = {name: wanted or operator.pool.sheets[name] for name in rows["device_name"].unique()}
    shares = {name: known.share(sheet) for name, sheet in sheets.items()}
    given = rows.reindex(columns=operator.family.columns)
    kinds = set(zip(rows["device_name"], rows["operator"], rows["dtype"], strict=True))
    of_peak = {kind: known.peak_shares(sheets[kind[0]], *kind[1:])[0] for kind in kinds}
    at, base = features(given, sheets, shares, of_peak, operator.vocabulary)
    return at, base.to_numpy(dtype=float)


def _some(rows: pd.DataFrame) -> pd.DataFrame:
    """At most ROWS_OF_A_SOURCE rows of each GPU and source, drawn with a fixed seed."""
    shuffled = rows.sample(frac=1.0, random_state=0)
    return shuffled[
        shuffled.groupby(["device_name", "run_id", "operator"]).cumcount() < ROWS_OF_A_SOURCE
    ].sort_index()


def _like(sheet: Datasheet, other: Datasheet) -> float:
    """How much a GPU counts for another, 0 to 1."""
    if math.isinf(distance := apart(sheet, other)):
        return UNLIKE_MAKER
    cached = {(of.capability or (0, 0))[0] < FIRST_CACHED for of in (sheet, other)}
    cache = 1.0 if len(cached) == 1 else UNLIKE_CACHE
    memory = 1.0 if (sheet.memory_type == "HBM") == (other.memory_type == "HBM") else UNLIKE_MEMORY
    return cache * memory * math.exp(-UNLIKE_GENERATION * distance)


def _standardized(at: Floats, by: Floats, weights: Floats) -> Floats:
    """Features in standard deviations of `by`, times their weights; without those that never change there."""
    varies = by.std(axis=0) > 0
    # A feature that is nearly the same everywhere is not blown up.
    scaled = (at - by.mean(axis=0)) / (by.std(axis=0) + 0.3) * weights
    return np.asarray(scaled[:, varies] if varies.any() else np.zeros((len(at), 1)))


def _process(at: Floats, left: Floats, wanted: Floats) -> tuple[Floats, Floats, float]:
    """What is left, in logarithms, by a Gaussian process: (expected, half-width of the interval, mean error).

    The error is that of each row when it is left out.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

    kernel = (
        ConstantKernel(0.05, (1e-4, 2.0)) * Matern(3.0, (0.3, 30.0), nu=1.5)
        + ConstantKernel(0.02, (1e-4, 2.0))
        + WhiteKernel(1e-3, (1e-5, 1e-1))
    )
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        # The bounds say what is believable, so that an optimum at one of them is an answer.
        process = GaussianProcessRegressor(kernel, random_state=0).fit(at, left)
    log, deviation = process.predict(wanted, return_std=True)
    # What each row would be without itself (Rasmussen and Williams, 5.12): no second fit is needed.
    inverse = np.linalg.inv(process.L_ @ process.L_.T)
    off = process.alpha_.ravel() / np.diag(inverse)
    width = _quantile(np.abs(off) * np.sqrt(np.diag(inverse)), np.ones(len(off)))
    return log, width * deviation, float(np.abs(np.expm1(-off)).mean())


def _quantile(errors: Floats, weights: Floats) -> float:
    """Weighted conformal quantile: the smallest error that covers the share COVERS of the weight."""
    order = np.argsort(errors)
    share = np.cumsum(weights[order]) / (weights.sum() * (1.0 + 1.0 / len(errors)))
    return float(errors[order][min(int(np.searchsorted(share, COVERS)), len(errors) - 1)])


def _learned(base: Floats, log: Floats, half: Floats, error: float) -> PooledPrediction:
    return PooledPrediction(base * np.exp(log), base * np.exp(log - half), base * np.exp(log + half), error)
