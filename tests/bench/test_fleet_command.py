"""`python -m bench fleet`: what it prints, its JSON, its exit codes, and what a fleet should reach."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from bench.__main__ import app
from bench.fleet.observed import EXPECTED
from bench.store.parquet import write
from bench.store.schema import Measurement
from studies.fleets import PLANS, commanded, drawn, ours, scores
from studies.fleets import written as drawn_files
from tests.bench.fleet_made import CASES, H100, Gpu, gpus, run, written
from tests.bench.rows import row

Chance = np.random.Generator


def said(*words: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["fleet", *map(str, words)])
    return done.exit_code, done.output


def test_a_report_says_what_is_slow_missing_left_out_and_failed(tmp_path: Path, chance: Chance) -> None:
    units = gpus(4, 4)
    units[6] = replace(units[6], slow={"compute": 1.3}, state={"temperature_c": 85.0, "held_thermal": 0.6})
    units[9] = replace(units[9], fails={"copy": "wrong", "read": "crashed"})
    written(tmp_path, units, chance, together=True)
    bad = sorted(tmp_path.rglob("node003*.parquet"))[-1]
    bad.write_bytes(bad.read_bytes()[:-100])
    (tmp_path / EXPECTED).write_text("node000 4\nnode001 4\nnode002 4\nnode003 4\nnode004 4\n")
    code, text = said(tmp_path)
    assert code == 1
    first, *rest = text.splitlines()
    assert first == (
        f"16 units (16 {H100}) on 4 nodes, {len(CASES)} cases alone and together with all GPUs of the node, "
        "newest runs 2026-11-01"
    )
    assert rest[0] == "MISSING node004 (4 units)" and rest[1].startswith(f"left out: {bad}: ")
    (slow,) = (line for line in rest if "node001 0000:2b:00.0" in line and "compute" in line)
    assert " +3" in slow.split("compute")[1] and "cooling: 85 °C, the others 60 °C" in slow
    (failed,) = (line for line in rest if line.startswith("FAILED node002 0000:1b:00.0: "))
    assert "1 crashed" in failed and "1 wrong" in failed and " (fleet/copy-" in failed
    assert "healthy units differ by (68 % lie within; alone / together) compute ±" in text
    assert "a synchronous job waits for its slowest unit (compute together): a job of 8 units +" in text
    assert len(rest) < 24, "one screen"


def test_json_has_everything_and_markdown_a_table(tmp_path: Path, chance: Chance) -> None:
    units = gpus(3, 4)
    units[5] = replace(units[5], slow={"all": 1.3}, state={"power_limit_w": 500.0})
    written(tmp_path, units, chance)
    code, text = said(tmp_path, "--json", "--expect")
    told = json.loads(text)
    assert code == told["exit_code"] == 1 and len(told["units"]) == 12
    slow = next(each for each in told["slow"] if each["name"] == "node001 0000:1b:00.0")
    assert (slow["class"], slow["cause"], slow["together"]) == ("all", "power", None)
    assert slow["time_ratio"] == pytest.approx(1.3, abs=0.06) and slow["low"] < slow["effect"] < slow["high"]
    lists = {"missing", "left_out", "remarks", "gathered", "failed", "spreads", "synchronous", "nodes"}
    assert lists <= told.keys() and len(told["effects"]) == 12 * 6 and len(told["reached"]) == 6
    _, page = said(tmp_path, "--markdown")
    rows = [line for line in page.splitlines() if line.startswith("|")]
    assert rows[0].startswith("| slow |")
    assert any("node001 0000:1b:00.0 | all kinds | +" in line for line in rows)


def test_exit_codes(tmp_path: Path, chance: Chance) -> None:
    healthy = written(tmp_path / "healthy", gpus(3, 4), chance, unit_sd=1e-4, run_sd=1e-4)
    code, text = said(healthy)
    assert code == 0 and "No unit is slow beyond" in text
    assert "its slowest unit" in text and "without the slow ones" not in text
    (healthy / EXPECTED).write_text("node000\nnode009\n")
    assert said(healthy)[0] == 1
    (tmp_path / "plan.txt").write_text("node000 4\n")
    assert said(healthy, "--expected", tmp_path / "plan.txt")[0] == 0
    few = written(tmp_path / "few", gpus(1, 4), chance)
    code, text = said(few)
    assert code == 3 and "4 units, too few to say how far healthy ones differ (it takes 8)" in text
    assert "python -m bench compare A B" in text.splitlines()[-1], "what else there is"
    refused = [
        (tmp_path / "nothing",),
        (healthy, "--json", "--markdown"),
        (healthy, "--expected", tmp_path / "no"),
    ]
    assert [said(*words)[0] for words in refused] == [2, 2, 2]
    write(tmp_path / "else" / "theirs.parquet", [replace(row(), source="somebody")])
    code, text = said(tmp_path / "else")
    assert (code, text.count("\n")) == (2, 1) and "all rows are imported, so they belong to no unit" in text


def test_slow_by_less_than_three_percent_is_told_without_alarm(tmp_path: Path, chance: Chance) -> None:
    """Of a unit in a slot that would also be an emoji."""
    slow = Gpu("node000", 10, slow={"all": 1.02})
    code, text = said(written(tmp_path, [*gpus(3, 4), slow], chance, unit_sd=1e-4, run_sd=1e-4))
    assert code == 0 and "node000 0000:ab:00.0   all kinds      +2.0 %" in text


def test_failures_of_most_units_or_made_good_are_nobodys(tmp_path: Path, chance: Chance) -> None:
    units = [replace(gpu, fails={"square8": "error"}) for gpu in gpus(3, 4)]
    written(tmp_path, units, chance, unit_sd=1e-4, run_sd=1e-4)
    write(tmp_path / "before.parquet", run(replace(units[3], fails={"read": "timeout"}), chance, day=1))
    write(tmp_path / "after.parquet", run(replace(units[3], fails={}), chance, day=2, unit_sd=1e-4))
    assert "FAILED" not in said(tmp_path)[1]


def test_what_is_reached_is_held_against_datasheet_and_published_rates(
    tmp_path: Path, chance: Chance
) -> None:
    def at(rate: float) -> str:
        def change(each: Measurement) -> Measurement:
            median_s = CASES["square"]["flop"] / rate
            return replace(each, **({"median_s": median_s} if each.sweep == "fleet/square" else {"flop": 0}))

        return said(written(tmp_path / f"{rate}", gpus(2, 4), chance, change=change), "--expect")[1]

    text = at(700e12)
    (line,) = (line for line in text.splitlines() if line.startswith(" fleet/square-"))
    assert "700 TFLOP/s" in line and "70.7 %" in line and "88.2 %" in line  # of 989.4e12 and of 794e12
    says = "its median unit reaches 700 TFLOP/s in its best product, 12 % below the highest published"
    assert f"{H100}: {says}" in text
    assert "highest published rate (" not in at(780e12)
    other = written(tmp_path / "other", [Gpu("a", 0, "cpu-unknown")], chance)
    assert "no datasheet here has this device" in said(other, "--expect")[1]


# ---- held-out fleets (studies/fleets.py), few of them


def test_held_out_fleets(seed: int) -> None:
    found = scores(PLANS[0], 3, seed)
    rule, percent = found["ours"], found["> 1 sigma, > 10 %"]
    hits = rule.hits[0.08]
    assert np.mean(hits) >= 6 / 9 and all(rule.nodes) and rule.false <= 0.35 * rule.named
    assert np.mean(percent.hits[0.08]) < np.mean(hits), "the rule it replaces"


def test_a_held_out_fleet_through_files_and_the_command(tmp_path: Path, chance: Chance) -> None:
    plan = replace(PLANS[0], second_kind=0, slow_node=False, units=24, slow=(0.3,), missing=0)
    draw = drawn(plan, chance)
    drawn_files(draw, tmp_path)
    names, code, _ = commanded(draw, tmp_path)
    assert code == 1 and set(draw.slow) <= names and set(draw.slow) <= ours(draw)
