"""Predictions that are learned from timings of many GPUs: of any operator, on any GPU with a datasheet.

    t = base * exp(residual)

The base and the features of a launch are those of bench/model/launch_features.py. Extremely randomized trees
(scikit-learn) learn what others leave of it: each GPU counts by how like it is to the one that is predicted
(generation, maker, kind of memory). Of a GPU that has timings of the operator itself, at most CALIBRATING of
each source are designated, spread over sizes and parameters; a Gaussian process learns what the trees leave
of these. Designated rows are never scored.

An interval holds nine launches in ten. Of a GPU without timings its width comes from GPUs that were left out
in turn; of one with them from the designated rows, each left out in turn.

The bandwidth that a copy reaches is a property of a GPU and its memory, so it is looked up first: in the
largest element-wise launches that were timed there (these are never scored either), else in those of the
GPUs with such memory.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bench.model.launch_features import START_S, Vocabulary, features, near, with_parameters
from bench.model.roofline import Floats

if TYPE_CHECKING:
    import pandas as pd
    from sklearn.ensemble import ExtraTreesRegressor

    from bench.device.datasheet import Datasheet

CALIBRATING = 64
"""Rows of one operator, GPU and source that calibrate at most; of fewer than twice as many, a quarter."""
LEAST_ROWS = 16
"""Rows of a source from which a GPU is calibrated; with fewer it is as one without timings."""
COVERS = 0.9
"""Share of launches whose time the interval is meant to hold."""
TREES, LEAF, FEATURES_OF_A_SPLIT, ROWS_OF_A_SOURCE = 120, 2, 0.5, 500
FOLDS = 5
UNLIKE_GENERATION, UNLIKE_CACHE, UNLIKE_MEMORY, UNLIKE_MAKER = 1.0, 0.3, 0.5, 0.05
"""What a GPU counts: exp(-difference of compute capabilities), and factors for another first-level cache,
memory and maker."""
FIRST_CACHED = 7.0
"""Compute capability since which the first-level cache keeps what a kernel loads (Volta tuning guide)."""
LARGEST, CACHES = 16, 8
"""Launches of a GPU that say what its memory reaches: the largest, of so many caches at least."""
STREAMING = ("activations", "elementwise")
"""Operators whose launches go through memory once, whatever they compute, but for a power."""
USUAL_SHARE = 0.85
"""Share of the datasheet's bandwidth, where no GPU was timed."""


def largest(rows: pd.DataFrame, sheets: Mapping[str, Datasheet]) -> pd.Index:
    """The rows of each GPU that say what its memory reaches; `sheets` are by device name."""
    cache = rows["device_name"].map({name: sheet.l2_byte for name, sheet in sheets.items()})
    streaming = rows["operator"].isin(STREAMING) & ~rows["parameters"].str.contains('"power"')
    streams = rows[streaming & (rows["byte_moved"] > CACHES * cache)].sort_values("byte_moved", kind="stable")
    return streams.groupby("device_name", sort=False).tail(LARGEST).index


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
    def reached(self) -> Mapping[str, float]:
        """Device name -> share of the datasheet's bandwidth that its largest launches reach."""
        largest = self.rows.loc[self.largest]
        bandwidth = (
            largest["device_name"]
            .map({name: sheet.bandwidth_byte_per_s for name, sheet in self.sheets.items()})
            .astype(float)
        )
        working_s = largest["median_s"] - largest["clock_start_s"].astype(float).fillna(START_S)
        shares = (largest["byte_moved"] / bandwidth / working_s).groupby(largest["device_name"]).median()
        return {str(name): float(share) for name, share in shares.items() if share > 0}

    def share(self, sheet: Datasheet, known: Mapping[str, float]) -> float:
        """What a GPU is expected to reach: the median of those known with the same maker and memory."""
        alike = [
            share
            for name, share in known.items()
            if (of := self.sheets[name]).memory_type == sheet.memory_type
            and (of.capability is None) == (sheet.capability is None)
        ]
        return float(np.median(alike or list(known.values()) or [USUAL_SHARE]))

    @cached_property
    def _operators(self) -> dict[str, OperatorPool]:
        return {}

    def of(self, operator: str) -> OperatorPool:
        """What it knows of one operator."""
        if operator not in self._operators:
            rows = with_parameters(self.rows[self.rows["operator"] == operator])
            self._operators[operator] = OperatorPool(self, rows)
        return self._operators[operator]


@dataclass(frozen=True, eq=False)
class OperatorPool:
    """The timings of one operator."""

    pool: Pool
    rows: pd.DataFrame

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary of all its rows."""
        return Vocabulary.of(self.rows)

    def own(self, wanted: Datasheet) -> pd.DataFrame:
        """The rows of this GPU."""
        return self.rows[self.rows["device_name"].isin(wanted.match)]

    def others(self, wanted: Datasheet) -> pd.DataFrame:
        """The rows of all other GPUs."""
        return self.rows[~self.rows["device_name"].isin(wanted.match)]

    def unseen(self, wanted: Datasheet, rows: pd.DataFrame) -> PooledPrediction | None:
        """Launches of a GPU by timings of all others. None if there are none.

        `rows` have columns of parameters; their device_name is one that the datasheet matches.
        """
        others = self.others(wanted)
        if not len(others):
            return None
        known = {name: s for name, s in self.pool.reached.items() if name not in wanted.match}
        prediction = _Forest.of(self, others, known, wanted).predict(rows, wanted)
        width, error = self._left_out(others, known, wanted)
        half = width * (prediction.disagreement + prediction.spread)
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

    def _left_out(
        self, rows: pd.DataFrame, known: Mapping[str, float], wanted: Datasheet
    ) -> tuple[float, float]:
        """(quantile of errors over disagreement, mean error) of GPUs left out in turn.

        Each counts as it is like the wanted one. NaN where there is only one GPU.
        """
        from sklearn.model_selection import GroupKFold

        rows = _some(rows)
        names = rows["device_name"]
        if names.nunique() < 2:
            return math.nan, math.nan
        errors, scaled, weights = [], [], []
        for learned, left_out in GroupKFold(min(FOLDS, names.nunique())).split(rows, groups=names):
            unseen = rows.iloc[left_out]
            without = {name: share for name, share in known.items() if name not in set(unseen["device_name"])}
            forest = _Forest.of(self, rows.iloc[learned], without, wanted)
            for name, of_device in unseen.groupby("device_name"):
                sheet = self.pool.sheets[str(name)]
                prediction = forest.predict(of_device, sheet)
                off = prediction.log - np.log(of_device["median_s"].to_numpy(dtype=float) / prediction.base)
                errors.append(np.abs(np.expm1(off)))
                scaled.append(np.abs(off) / (prediction.disagreement + prediction.spread))
                weights.append(np.full(len(off), _like(sheet, wanted) / len(off)))
        weight = np.concatenate(weights)
        error = float(np.average(np.concatenate(errors), weights=weight))
        return _quantile(np.concatenate(scaled), weight), error


class _PooledResult(NamedTuple):
    """Predictions of launches [n]: base in seconds, expected log(t / base), the trees' disagreement."""

    base: Floats
    log: Floats
    disagreement: Floats
    spread: float
    features: Floats
    """[n, k]: what tells launches of one device apart."""
    weights: Floats
    """[k]: how much each of them does."""


@dataclass(frozen=True, eq=False)
class _Forest:
    """Trees for one GPU that none of their rows is of."""

    of_operator: OperatorPool
    trees: ExtraTreesRegressor
    known: Mapping[str, float]
    spread: float
    """The usual disagreement of the trees, in logarithms: added to each, so that none is certain."""

    @classmethod
    def of(
        cls, operator: OperatorPool, rows: pd.DataFrame, known: Mapping[str, float], wanted: Datasheet
    ) -> _Forest:
        rows = _some(rows)
        sheets = operator.pool.sheets
        at, base = _features(operator, rows, known)
        left = np.log(rows["median_s"].to_numpy(dtype=float) / base)
        counts = rows.groupby("device_name")["median_s"].transform("size")
        like = rows["device_name"].map(
            {name: _like(sheets[name], wanted) for name in rows["device_name"].unique()}
        )
        weights = (like / np.sqrt(counts)).to_numpy(dtype=float)
        trees = grown(at.to_numpy(), left, weights)
        _, disagreement = _mean_and_deviation(trees, at.to_numpy())
        return cls(operator, trees, known, float(np.median(disagreement)) or 1e-9)

    def predict(self, rows: pd.DataFrame, sheet: Datasheet) -> _PooledResult:
        """Predict rows of a GPU."""
        at, base = _features(self.of_operator, rows, self.known, sheet)
        log, disagreement = _mean_and_deviation(self.trees, at.to_numpy())
        # What the trees split by, and where they end: launches alike in these are alike in what is left.
        importance = self.trees.feature_importances_
        weights = np.append(np.sqrt(importance / (importance.max() or 1.0)), 1.0)
        return _PooledResult(base, log, disagreement, self.spread, np.column_stack([at, log]), weights)


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


def _base(
    operator: OperatorPool, rows: pd.DataFrame, known: Mapping[str, float], wanted: Datasheet
) -> _PooledResult:
    """Launches of a GPU of which nothing is learned."""
    at, base = _features(operator, rows, known, wanted)
    nothing, telling = np.zeros(len(rows)), at[near(at)].to_numpy(dtype=float)
    return _PooledResult(base, nothing, nothing, 0.0, telling, np.ones(telling.shape[1]))


def _features(
    operator: OperatorPool, rows: pd.DataFrame, known: Mapping[str, float], wanted: Datasheet | None = None
) -> tuple[pd.DataFrame, Floats]:
    pool = operator.pool
    names = rows["device_name"].unique()
    sheets = {name: wanted or pool.sheets[name] for name in names}
    shares = {name: known.get(name) or pool.share(sheets[name], known) for name in names}
    at, base = features(rows.reindex(columns=operator.rows.columns), sheets, shares, operator.vocabulary)
    return at, base.to_numpy(dtype=float)


def _some(rows: pd.DataFrame) -> pd.DataFrame:
    """At most ROWS_OF_A_SOURCE rows of each GPU and source, drawn with a fixed seed."""
    shuffled = rows.sample(frac=1.0, random_state=0)
    return shuffled[shuffled.groupby(["device_name", "run_id"]).cumcount() < ROWS_OF_A_SOURCE].sort_index()


def _like(sheet: Datasheet, other: Datasheet) -> float:
    """How much a GPU counts for another, 0 to 1."""
    if (sheet.capability is None) != (other.capability is None):
        return UNLIKE_MAKER
    first, second = (
        major + minor / 10 for major, minor in (sheet.capability or (0, 0), other.capability or (0, 0))
    )
    cache = 1.0 if (first < FIRST_CACHED) == (second < FIRST_CACHED) else UNLIKE_CACHE
    memory = 1.0 if (sheet.memory_type == "HBM") == (other.memory_type == "HBM") else UNLIKE_MEMORY
    return cache * memory * math.exp(-UNLIKE_GENERATION * abs(first - second))


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
