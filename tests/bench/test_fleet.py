"""`python -m bench fleet`: which units it names, what is missing or refused, its JSON and exit codes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from bench.__main__ import app
from bench.errors import UserError
from bench.fleet.judge import judge
from bench.fleet.observed import EXPECTED, missing, newest, read
from bench.store.parquet import write
from bench.store.schema import Measurement
from studies.fleets import PLANS, drawn, ours
from tests.bench.fleet_made import CASES, H100, Gpu, gpus, run, written
from tests.bench.rows import row

Chance = np.random.Generator


def said(*words: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["fleet", *map(str, words)])
    return done.exit_code, done.output


def named(folder: Path) -> dict[str, str]:
    """Who is slow by more than a healthy one is -> in what most of all."""
    return {each.name: each.work for each in judge(read([folder])).slow if each.change.log > 0.05}


def test_a_report_says_what_is_slow_missing_left_out_and_failed(tmp_path: Path, chance: Chance) -> None:
    units = gpus(4, 4)
    units[6].slow = {"compute": 1.3}
    units[9].fails = {"copy": "wrong", "read": "crashed"}
    written(tmp_path, units, chance, together=True)
    bad = sorted(tmp_path.rglob("node003*.parquet"))[-1]
    bad.write_bytes(bad.read_bytes()[:-100])
    (tmp_path / EXPECTED).write_text("node000 4\nnode001 4\nnode002 4\nnode003 4\nnode004 4\n")
    code, text = said(tmp_path)
    assert code == 1
    assert text.startswith(f"16 units (16 {H100}) on 4 nodes, {len(CASES)} cases, 2026-11-01\n")
    (slow,) = (line for line in text.splitlines() if "node001 0000:2b:00.0" in line)
    assert "compute" in slow and " +3" in slow.split("compute")[1]
    assert "MISSING node004 (4 units)\n" in text and f"left out: {bad}: " in text
    assert "FAILED node002 0000:1b:00.0: 2 wrong (fleet/copy-" in text and ": 2 crashed (fleet/read-" in text
    assert "healthy units differ by (68 % lie within) " in text


def test_json_has_the_units_and_the_slow_ones(tmp_path: Path, chance: Chance) -> None:
    units = gpus(3, 4)
    units[5].slow = {"all": 1.3}
    code, text = said(written(tmp_path, units, chance), "--json")
    told = json.loads(text)
    assert code == told["exit_code"] == 1 and len(told["units"]) == 12
    by_id = {unit["id"]: (unit["node"], unit["slot"]) for unit in told["units"]}
    slow = next(each for each in told["slow"] if each["time_ratio"] > 1.1)
    assert by_id[slow["unit"]] == (slow["node"], slow["slot"]) == ("node001", "0000:1b:00.0")
    assert slow["work"] == "all" and slow["low"] < slow["time_ratio"] < slow["high"] and slow["p"] < 0.01
    assert slow["time_ratio"] == pytest.approx(1.3, abs=0.06)
    assert told.keys() == {
        *("exit_code", "units", "slow", "missing", "failed", "left_out", "remarks", "spread")
    }


def test_exit_codes(tmp_path: Path, chance: Chance) -> None:
    healthy = written(tmp_path / "healthy", gpus(3, 4), chance, sd=1e-4)
    code, text = said(healthy)
    assert code == 0 and "No unit is slow beyond" in text
    (healthy / EXPECTED).write_text("node000\nnode009\n")
    assert said(healthy)[0] == 1
    (healthy / EXPECTED).write_text("node000 4\n")
    assert said(healthy)[0] == 0
    code, text = said(written(tmp_path / "few", gpus(1, 7), chance))
    assert code == 3 and "too few units to say how far healthy ones differ: 7 of 7 were timed" in text
    write(tmp_path / "else" / "theirs.parquet", [replace(row(), source="somebody")])
    code, text = said(tmp_path / "else")
    assert (code, text.count("\n")) == (2, 1) and "all rows are imported, so they belong to no unit" in text
    assert said(tmp_path / "nothing")[0] == 2


@pytest.mark.parametrize(("times", "shown"), [(1.05, ""), (1.07, "node000 0000:ab:00.0 all kinds +7.0 %")])
def test_a_unit_is_named_from_five_percent_on(
    times: float, shown: str, tmp_path: Path, chance: Chance
) -> None:
    """However quiet the others are. Of a unit in a slot that would also be an emoji."""
    slow = Gpu("node000", 10, slow={"all": times})
    code, text = said(written(tmp_path, [*gpus(3, 4), slow], chance, sd=1e-4))
    assert (
        code == bool(shown) and shown in " ".join(text.split()) and ("No unit is slow" in text) != bool(shown)
    )


def test_failures_of_most_units_or_made_good_are_nobodys(tmp_path: Path, chance: Chance) -> None:
    units = [replace(gpu, fails={"tall": "error"}) for gpu in gpus(3, 4)]
    written(tmp_path, units, chance, sd=1e-4)
    write(tmp_path / "b.parquet", run(replace(units[3], fails={"read": "timeout"}), chance, day=2, sd=1e-4))
    assert "FAILED" in said(tmp_path)[1]
    write(tmp_path / "c.parquet", run(replace(units[3], fails={}), chance, day=3, sd=1e-4))
    assert "FAILED" not in said(tmp_path)[1]


# ---- who is slow


def test_few_of_many_healthy_units_are_named_and_the_slow_ones_are() -> None:
    """Fleets of 200, a few of those of studies/fleets.py: in more draws 97 % of those slow by 8 %."""
    hits, healthy = [], 0
    for plan in PLANS[:4]:
        for seed in (3, 4):
            draw = drawn(plan, np.random.default_rng(seed))
            names = ours(draw)
            hits += [unit in names for unit in draw.slow]
            inside = {unit.id for unit in draw.fleet.units.values() if unit.node == draw.node}
            assert draw.node is None or draw.node in names
            healthy += len(names - {*draw.slow, draw.node, *inside})
    assert np.mean(hits) >= 0.95 and healthy <= 0.1 * sum(hits)


@pytest.mark.parametrize(
    ("slow", "work"),
    [({"memory": 1.12}, "memory"), ({"all": 1.12}, "all"), ({"compute together": 1.12}, "compute together")],
)
def test_a_unit_is_named_in_what_it_is_slow(
    tmp_path: Path, chance: Chance, slow: dict[str, float], work: str
) -> None:
    units = gpus(4, 4)
    units[13].slow = slow
    found = named(written(tmp_path, units, chance, together=True))
    assert found.keys() == {"node003 0000:1b:00.0"} and found["node003 0000:1b:00.0"] in (
        work,
        f"{work} together",
    )


@pytest.mark.parametrize("nodes", [4, 10])
def test_a_slow_node_is_named_and_its_units_relative_to_it(
    tmp_path: Path, chance: Chance, nodes: int
) -> None:
    units = gpus(nodes, 8)
    for unit in units[16:24]:
        unit.slow = {"all": 1.1}
    units[20].slow = {"all": 1.1, "memory": 1.25}
    units[3].slow = {"memory": 1.25}
    assert named(written(tmp_path, units, chance)) == {
        "node002": "all", "node002 0000:4b:00.0": "memory", "node000 0000:3b:00.0": "memory",
    }  # fmt: skip


def test_the_newest_run_is_judged_under_its_own_protocol(tmp_path: Path, chance: Chance) -> None:
    units = gpus(3, 4)
    written(tmp_path, units, chance)
    mended, broken = (replace(units[at], slow={"all": 1.3}) for at in (2, 5))
    write(tmp_path / "2.parquet", run(mended, chance, day=2) + run(broken, chance, day=4))
    write(tmp_path / "1.parquet", run(units[2], chance, day=3))
    slower = run(replace(units[7], slow={"all": 3.0}), chance, day=5)
    write(tmp_path / "3.parquet", [replace(each, protocol="another") for each in slower])
    assert named(tmp_path).keys() == {"node001 0000:1b:00.0"}
    times = newest(read([tmp_path]).times)
    assert len(times) == 13 * len(CASES)


# ---- units, and what there should be


def test_units_are_told_apart_by_slot_tag_and_host(tmp_path: Path, chance: Chance) -> None:
    def cpu(each: Measurement) -> Measurement:
        return replace(each, device_kind="cpu", device_id="same", pci_bus=None, concurrent_gpus=None)

    written(tmp_path, [Gpu("a", 0, tags={"rack": "r1"}), Gpu("a", 1, tags={"node": "b"})], chance)
    hosts = [Gpu("host", at, "epyc", tags={"node": f"n{at}"}) for at in (1, 2)]
    written(tmp_path, [*hosts, Gpu("host", 3, "epyc")], chance, change=cpu)
    written(tmp_path, [Gpu("c", 0, "b200")], chance, change=lambda each: replace(each, host=None))
    written(tmp_path, [Gpu("d", 0, "a100")], chance, change=lambda each: replace(each, source="NVIDIA"))
    units = {
        unit.name.rpartition("unknown-")[1] or unit.name: unit for unit in read([tmp_path]).units.values()
    }
    assert units.keys() == {"a 0000:0b:00.0", "b 0000:1b:00.0", "n1", "n2", "host", "unknown-"}
    assert units["a 0000:0b:00.0"].tags == {"rack": "r1"} and units["b 0000:1b:00.0"].kind == H100


@pytest.mark.parametrize(
    ("slots", "expected", "lacks"),
    [
        ([(0, 1, 2, 3), (0, 1, 3), (0, 1, 2, 3)], None, ["MISSING n1: 1 of 4 units (0000:2b:00.0)"]),
        ([(0, 1), (2, 3), (4, 5)], None, []),  # no two nodes have the same slots
        ([(0,), (2, 3), (4, 5), (6, 7)], None, ["MISSING n0: 1 of 2 units"]),
        ([(0,), (0, 1)], None, ["MISSING n0: 1 of 2 units (0000:1b:00.0)"]),  # if in doubt the more
        (
            [(0,), (0,)],
            "# plan\nn0 2\nn1\nn9 8  # new\nn10\n\n",
            ["MISSING n0: 1 of 2 units", "MISSING n9 (8 units)", "MISSING n10"],
        ),
    ],
)
def test_a_list_or_else_most_nodes_say_how_many_units_there_should_be(
    tmp_path: Path, chance: Chance, slots: list[tuple[int, ...]], expected: str | None, lacks: list[str]
) -> None:
    written(tmp_path, [Gpu(f"n{node}", slot) for node, of in enumerate(slots) for slot in of], chance)
    if expected is not None:
        (tmp_path / EXPECTED).write_text(expected)
    assert list(missing(read([tmp_path]))) == lacks


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"a b c\n", ":1: 'a b c': give"),
        (b"a 8\nb -1\n", ":2: 'b -1': give"),
        (b"a 0", ":1: 'a 0': give"),
        (b"\xff\xfe", ": the list of expected nodes cannot be read"),
    ],
)
def test_a_list_that_is_none_is_refused(tmp_path: Path, chance: Chance, text: bytes, says: str) -> None:
    folder = written(tmp_path, [Gpu("a", 0)], chance)
    (tmp_path / EXPECTED).write_bytes(text)
    with pytest.raises(UserError) as refusal:
        read([folder])
    assert f"{EXPECTED}{says}" in str(refusal.value)
