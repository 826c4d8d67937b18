"""The learned level: what L2 leaves of measured times, by the launch and by what L2 says of it.

    log(time / L2) = forest(m, n, k, the terms of L2, tile, waves, tail, ...) + what nobody knows

Extremely randomised trees (scikit-learn), learned from the calibration shapes alone. Far from every shape
they keep to the nearest ones, so the correction stays within what was measured. `python -m
studies.learners` compares their error with that of Gaussian processes and gradient boosting.

A device with few shapes of its own may have siblings: other devices' shapes, each against its own L2. A
second forest, learned from those, tells the first one what others leave at the same launch.

The interval comes from shapes that the forest did not see (five folds): the quantile COVERS of their errors,
each divided by how far the trees disagree there, so that it is wider where they do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bench.environment.dependencies import Requirement
from bench.model.roofline import Floats
from bench.model.tile_wave import SMALL_TILE, Machine, PredictedGemms, Products

if TYPE_CHECKING:
    from sklearn.ensemble import ExtraTreesRegressor

LEAST_SHAPES = 48
"""Shapes from which a residual is learned; with fewer the level is L2."""
FEW_SHAPES = 256
"""Number of shapes of its own from which siblings no longer help a device."""
COVERS = 0.9
"""Share of launches whose time the interval is meant to hold."""
TREES, LEAF, SIBLINGS_LEAF, FOLDS = 100, 2, 5, 5


class Sample(NamedTuple):
    """What a residual is learned from: the calibration shapes of one device and data type."""

    features: Floats
    """[n, 15], as `features` gives them."""
    residual: Floats
    """[n]: log(measured / L2)."""


class Correction(NamedTuple):
    """Factors of L2's seconds, each an array [n]: the expected, and the ends of the interval."""

    factor: Floats
    low: Floats
    high: Floats


def features(machine: Machine, products: Products, answer: PredictedGemms) -> Floats:
    """[n, 15]: the sizes, what L2 says takes the time, and how its tiles fill the device."""
    tile_m, tile_n = answer.tile.T.astype(np.float64)
    area = tile_m * tile_n
    held = machine.sm_count * np.where(area <= SMALL_TILE, 2.0, 1.0)
    waves = np.ceil(products.m / tile_m) * np.ceil(products.n / tile_n) * answer.parts / held
    launch_s = machine.launch_s + np.where(answer.parts > 1, machine.split_s, 0.0)
    # A flushed cache holds nothing: as if the working set were thousands of caches large.
    held_share = np.minimum(products.working_set / machine.cache_byte, 1e4)
    columns = (
        *(np.log(products.m), np.log(products.n), np.log(products.k), np.log(answer.seconds)),
        *(np.log(answer.compute_s / answer.memory_s), launch_s / answer.seconds, answer.cache_share),
        *(answer.used, np.log(area), np.log(tile_m / tile_n), np.log(answer.parts), np.log(waves)),
        *(1.0 - waves / np.ceil(waves), np.log(held_share), products.n / 128 % 1.0),
    )
    return np.stack(columns, axis=1)


@dataclass(frozen=True)
class Residual:
    """A learned correction of one device and data type."""

    forest: ExtraTreesRegressor
    siblings: ExtraTreesRegressor | None
    spread: float
    """The usual disagreement of the trees, in logarithms: added to each, so that none is certain."""
    quantile: float
    """Quantile of the errors on unseen shapes over disagreement."""

    def correct(self, at: Floats) -> Correction:
        """The correction at these features, [n, 15]."""
        log, disagree = told(self.forest, _with_siblings(self.siblings, at))
        half = self.quantile * (disagree + self.spread)
        return Correction(np.exp(log), np.exp(log - half), np.exp(log + half))


def can_learn() -> bool:
    """Whether scikit-learn is installed: without it the finest level is L2, and commands say so."""
    return Requirement("scikit-learn", "").is_there


def learn(own: Sample, siblings: Sequence[Sample] = ()) -> Residual | None:
    """The residual of this sample; None where it is too small, or without scikit-learn. Deterministic."""
    count = len(own.residual)
    if count < LEAST_SHAPES or not can_learn():
        return None
    # Importing it takes two seconds, more than most commands that import this module.
    from sklearn.model_selection import KFold

    others = None
    if siblings and count < FEW_SHAPES:
        at, left = (np.concatenate(parts) for parts in zip(*siblings, strict=True))
        others = forest(at, left, TREES, SIBLINGS_LEAF)
    known = _with_siblings(others, own.features)
    error, disagree = np.zeros(count), np.zeros(count)
    for seen, unseen in KFold(FOLDS, shuffle=True, random_state=0).split(known):
        expected, disagree[unseen] = told(forest(known[seen], own.residual[seen]), known[unseen])
        error[unseen] = np.abs(expected - own.residual[unseen])
    spread = float(np.median(disagree)) or 1e-9
    # Of so few errors the quantile is that of one more than there are: the launch to come.
    covers = min(1.0, COVERS * (count + 1) / count)
    quantile = float(np.quantile(error / (disagree + spread), covers))
    return Residual(forest(known, own.residual), others, spread, quantile)


def forest(
    at: Floats,
    residual: Floats,
    trees: int = TREES,
    leaf: int = LEAF,
    features_of_a_split: float = 1.0,
    weights: Floats | None = None,
) -> ExtraTreesRegressor:
    """Extremely randomized trees that give what is left, [n], at these features, [n, k]. Deterministic.

    `features_of_a_split` is the share of the features that a split chooses from.
    """
    from sklearn.ensemble import ExtraTreesRegressor

    made = ExtraTreesRegressor(trees, min_samples_leaf=leaf, max_features=features_of_a_split, random_state=0)
    return made.fit(at, residual, weights)


def told(forest: ExtraTreesRegressor, at: Floats) -> tuple[Floats, Floats]:
    """(mean, standard deviation) over the trees, each [n]."""
    from sklearn.utils import check_array

    checked = check_array(at, dtype=np.float32, order="C")  # once, not by each of a hundred trees
    trees = np.stack([tree.predict(checked, check_input=False) for tree in forest.estimators_])
    return trees.mean(axis=0), trees.std(axis=0)


def _with_siblings(siblings: ExtraTreesRegressor | None, at: Floats) -> Floats:
    """The features, with what siblings leave at such a launch as one more where there are any."""
    return at if siblings is None else np.column_stack([at, siblings.predict(at)])
