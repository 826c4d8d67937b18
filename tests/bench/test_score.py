"""The scorecard against plain loops, and who is scored: never the doubtful, the calibrating, the mixed."""

from __future__ import annotations

import json
import math
import statistics
from typing import Any

import numpy as np
import pandas as pd
import pytest

from bench.judge.score import scorecard
from bench.model.predict import LEVELS
from plots.cli.score import score_lines
from tests.bench.rows import Chance


def frame(n: int, chance: Chance, **facts: Any) -> pd.DataFrame:
    """Rows as plots.base derives them, as far as a score looks at them; predictions off by some 30 %."""
    median_s = 10 ** chance.uniform(-6, -1, n)
    made: dict[str, Any] = {
        **{"run_id": "run", "visit": 0, "sweep": "gemm", "operator": "gemm", "implementation": "cublas"},
        **{"device": "nvidia-h200", "dtype": "float16", "cache": "cold", "threads_asked": "all"},
        **{"parameters": [json.dumps({"dtype": "float16", "m": i}) for i in range(n)], "median_s": median_s},
        **{"calibrating": False, "scored": True, "source": None, "regime": "sustained"},
        **{"limiter": "memory", "structured_limiter": "wave tail"},
    }
    made |= {column: median_s * np.exp(chance.normal(0, 0.3, n)) for column in LEVELS.values()}
    made |= {"learned_low_s": made["learned_s"] / 1.5, "learned_high_s": made["learned_s"] * 1.5}
    return pd.DataFrame(made | facts)


def test_scores_are_what_a_plain_loop_gives(chance: Chance) -> None:
    rows = frame(201, chance)
    found = scorecard(rows).scores
    assert [one.level for one in found] == ["L0", "L1", "L2", "L3", "L2-priors"]
    for one in found:
        pairs = list(zip(rows[LEVELS[one.level]], rows["median_s"], strict=True))
        errors = sorted(100 * abs(predicted / measured - 1) for predicted, measured in pairs)
        assert (one.operator, one.device, one.n, one.runs) == ("gemm", "nvidia-h200", 201, ("run",))
        assert one.mape == pytest.approx(sum(errors) / 201)
        assert one.median == pytest.approx(errors[100])
        assert one.p90 == pytest.approx(errors[180])  # the 181st of 201: 90 % of the others are below
        logs = [math.log(predicted / measured) for predicted, measured in pairs]
        assert one.ratio == pytest.approx(math.exp(statistics.fmean(logs)))


def test_all_levels_are_scored_on_the_rows_that_all_of_them_know(chance: Chance) -> None:
    rows = frame(100, chance)
    silent = chance.permutation(100)
    rows.loc[silent[:30], "structured_s"] = np.nan
    rows.loc[silent[20:35], "datasheet_s"] = [np.nan, np.inf, 0.0] * 5
    rows[["priors_s", "learned_s"]] = np.nan  # a level that the device lacks entirely costs no row
    card = scorecard(rows)
    assert {one.level: one.n for one in card.scores} == {"L0": 65, "L1": 65, "L2": 65}
    of_all = rows.loc[silent[35:]]
    (l1,) = (one for one in card.scores if one.level == "L1")
    assert l1.mape == pytest.approx(100 * (of_all["predicted_s"] / of_all["median_s"] - 1).abs().mean())
    assert card.scored == 65


def test_who_is_never_scored(chance: Chance) -> None:
    rows = frame(60, chance)
    rows.loc[0:9, "median_s"] = np.nan
    rows.loc[5:14, "calibrating"] = True  # 5 to 9 have no time either
    rows.loc[0:29, "scored"] = False
    rows.loc[12:14, "scored"] = True  # whatever the column says
    rows.loc[30:33, "visit"] = 1
    card = scorecard(rows)
    assert (card.rows, card.scored, {one.n for one in card.scores}) == (56, 26, {26})


def test_operators_devices_sources_and_regimes_are_never_pooled(chance: Chance) -> None:
    kinds: list[dict[str, Any]] = [{}, {"operator": "softmax"}, {"device": "nvidia-l40s"}]
    kinds += [{"source": "somebody 1.0; a file"}, {"source": "nobody 2.0"}]
    kinds += [{"regime": "boost"}, {"regime": None}]
    rows = pd.concat([frame(5 + i, chance, **kind) for i, kind in enumerate(kinds)], ignore_index=True)
    found = [one for one in scorecard(rows).scores if one.level == "L2"]
    keys = {(one.operator, one.device, one.source, one.regime): one.n for one in found}
    kinds[3] = {"source": "somebody 1.0"}  # who, not which file
    usual = {"operator": "gemm", "device": "nvidia-h200", "source": None, "regime": "sustained"}
    assert keys == {tuple((usual | kind).values()): 5 + i for i, kind in enumerate(kinds)}
    table = "\n".join(score_lines(scorecard(rows)))
    assert "imported: somebody 1.0" in table and "boost" in table and "regime unknown" in table
    assert [one.operator for one in found] == sorted(one.operator for one in found)


def test_runs_of_one_device_are_one_score(chance: Chance) -> None:
    rows = pd.concat([frame(4, chance, run_id="b"), frame(3, chance, run_id="a")], ignore_index=True)
    assert [(one.n, one.runs) for one in scorecard(rows).scores] == [(7, ("a", "b"))] * 5


def test_levels_that_share_no_row_have_no_score(chance: Chance) -> None:
    rows = frame(4, chance).drop(columns=["priors_s", "datasheet_s", "learned_s"])
    rows["predicted_s"] = [1.0, 1.0, np.nan, np.nan]
    rows["structured_s"] = [np.nan, np.nan, 1.0, 1.0]
    assert scorecard(rows).scores == ()
