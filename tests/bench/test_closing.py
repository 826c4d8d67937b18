"""The end of a run: fit for use or not, then what was found, in sentences with units and intervals."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from bench.cli.closing import FINDINGS, answer_lines
from bench.cli.findings import fit_sentence
from bench.cli.result_tables import side_lines
from bench.judge.claims import Declared, judge
from bench.judge.read_runs import runs
from bench.sweep.claims import Claim
from tests.bench.claims_made import SWEEP, bounds, ratios, slopes
from tests.bench.rows import Chance
from tests.plots.synthetic import H100, ceilings

GROWS = {"id": "FC-03", "rules": [43], "says": "A larger n runs at a higher rate", "slope": {"x": "n"}}
ABOUT_MEMORY = {"id": "GB-11", "rules": [22], "says": "A product takes what memory takes"}
ABOUT_MEMORY |= {"bound": {"by": "memory"}, "expect": "below 1.1"}
MINE = {"id": "ML-13", "says": "K that 8 does not divide takes longer", "expect": "above 1.1"}
MINE |= {"ratio": {"of": {"k": "!%8"}, "to": {"k": "%8"}, "pair": "nearest k", "per": "flop"}}


def said(rows: Any, *claims: dict[str, Any]) -> list[str]:
    (run,) = runs([*ceilings(H100), *rows])
    declared = Declared(SWEEP, (SWEEP,), [Claim.model_validate(claim) for claim in claims])
    return list(answer_lines(run, judge([run], [declared])))


def test_a_claim_is_a_sentence_with_unit_and_interval_and_what_does_not_hold_comes_first(
    chance: Chance,
) -> None:
    fit, blank, reached, *found = said(
        [*slopes(chance), *ratios(chance), *bounds(chance)],
        GROWS | {"expect": "below 0.9", "where": {"k": 4096, "m": "<2048", "n": ">8"}},
        MINE | {"where": {"m": 4096, "n": 4096}},
        ABOUT_MEMORY | {"where": {"n": 8}},
    )
    assert fit.startswith("Fit for use") and not blank
    assert " copies " in reached and reached.endswith(".")
    against, grows, ours = found
    number = r"\d+(\.\d+)?"
    assert re.fullmatch(
        r"NVIDIA's advice does not hold here \(rule 22\): a product takes what memory takes; measured: "
        rf"{number} times memory's time \({number} to {number}\), below 1.1 as expected in 0 of 16 rows\.",
        against,
    )
    assert re.fullmatch(
        rf"A larger n runs at a higher rate: time grows as n\^0\.2\d \({number} to {number}\) in 7 of 7 "
        r"lines\. NVIDIA's advice holds \(rule 43\)\.",
        grows,
    )
    assert ours.endswith(" pairs. What was expected holds (ML-13).") and " times (1." in ours


def test_of_many_claims_so_many_are_told_first_one_of_each_rule_and_the_others_counted(
    chance: Chance,
) -> None:
    many = [GROWS | {"expect": "below 0.9", "id": f"FC-{number:02}"} for number in range(1, 11)]
    lines = said(slopes(chance), *many, many[0] | {"id": "FC-11", "rules": [4, 15]})
    assert lines[-2].endswith("NVIDIA's advice holds (rules 4, 15).")
    assert len(lines) == 2 + FINDINGS + 1
    assert lines[-1] == f"More claims of the guides: {11 + 1 - FINDINGS} SUPPORTED."


@pytest.mark.parametrize(
    ("share", "begins"),
    [(0.4, "Fit for use, but 40 of 100 "), (0.6, "Not fit for use: 60 of 100 ")],
)
def test_a_run_of_which_most_times_are_suspect_is_not_fit_for_use(
    chance: Chance, share: float, begins: str
) -> None:
    (run,) = runs(replace(row, settled=number >= 100 * share) for number, row in enumerate(ratios(chance)))
    assert fit_sentence(run) == f"{begins}times are suspect ({round(100 * share)} unsettled)."


def test_a_run_without_a_time_has_one_sentence(chance: Chance) -> None:
    rows = (replace(row, status="crashed", median_s=None) for row in slopes(chance))
    (run,) = runs(rows)
    assert list(answer_lines(run, [])) == ["Not fit for use: no case has a time (28 crashed)."]


def test_a_suspect_time_stands_in_the_table_as_such_and_has_no_ratio(chance: Chance) -> None:
    def table(**changes: Any) -> str:
        rows = list(ratios(chance))[:1]
        mine = replace(rows[0], implementation="mine:f", **changes)
        (run,) = runs([*ceilings(H100), *rows, mine])
        (line,) = (line for line in side_lines(run) if "k4000" in line)
        return line

    assert table().count(" of roof") == 2 and "(x 1.00, 0.99 to 1.01; " in table()
    assert "suspect)" in table(settled=False) and "x " not in table(settled=False)
