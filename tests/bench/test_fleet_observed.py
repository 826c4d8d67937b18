"""Result files -> units, nodes and times; what is missing, left out and refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench.errors import UserError
from bench.fleet.observed import CLASSES, EXPECTED, missing, newest, read, tags_of_all
from bench.store.parquet import write
from tests.bench.fleet_made import CASES, CLASS, H100, Gpu, cpu, gpus, run, written

Chance = np.random.Generator


def test_a_gpu_is_a_unit_and_its_host_the_node(tmp_path: Path, chance: Chance) -> None:
    fleet = read([written(tmp_path, [Gpu("a", 0, tags={"rack": "r1"}), Gpu("a", 1), Gpu("b", 0)], chance)])
    by_name = {unit.name: unit for unit in fleet.units.values()}
    assert set(by_name) == {"a 0000:0b:00.0", "a 0000:1b:00.0", "b 0000:0b:00.0"}
    first = by_name["a 0000:0b:00.0"]
    assert (first.node, first.kind, first.tags) == ("a", H100, {"rack": "r1"})
    assert first.uuid.startswith("GPU-") and first.serial and first.device_name == "NVIDIA H100 80GB HBM3"
    assert len(fleet.times) == 3 * len(CASES) and fleet.failed.empty and not fleet.left_out
    per_case = fleet.times.groupby("case", observed=True)["unit"].nunique()
    assert len(per_case) == len(CASES) and (per_case == 3).all()

    names = fleet.times["name"].str.extract(r"/(.+?)-x-")[0]
    assert dict(zip(names, fleet.times["class"], strict=True)) == CLASS and set(CLASS.values()) == set(
        CLASSES
    )


def test_the_tag_node_replaces_the_host_and_what_all_have_is_said_of_all(
    tmp_path: Path, chance: Chance
) -> None:
    units = [Gpu("a", i, tags={"simulated": "yes", "node": f"rack1-{i}", "rack": f"r{i}"}) for i in range(2)]
    found = read([written(tmp_path, units, chance)]).units.values()
    assert {unit.node: unit.tags["rack"] for unit in found} == {"rack1-0": "r0", "rack1-1": "r1"}
    assert tags_of_all(found) == ["simulated yes"]


def test_cpu_nodes_that_share_a_host_are_two_units(tmp_path: Path, chance: Chance) -> None:
    for name, node in (("1", "n1"), ("2", "n2"), ("3", None)):
        write(tmp_path / f"{name}.parquet", cpu(node, "host", chance))
    fleet = read([tmp_path])
    assert sorted(unit.name for unit in fleet.units.values()) == ["host", "n1", "n2"]
    assert {unit.slot for unit in fleet.units.values()} == {""} and not missing(fleet)


def test_units_whose_rows_tell_no_host_are_told_apart_and_share_no_node(
    tmp_path: Path, chance: Chance
) -> None:
    units = [Gpu("a", 0), Gpu("b", 0), Gpu("b", 1)]
    fleet = read([written(tmp_path, units, chance, change=lambda each: replace(each, host=None))])
    assert {unit.node for unit in fleet.units.values()} == {f"unknown-{unit}" for unit in fleet.units}
    assert len({unit.name for unit in fleet.units.values()}) == 3 and not missing(fleet)


def test_the_newest_time_counts_whatever_the_order_of_the_files(tmp_path: Path, chance: Chance) -> None:
    for name, day in (("a", 9), ("b", 2), ("c", 5)):
        write(tmp_path / f"{name}.parquet", run(Gpu("a", 0), chance, day=day))
    kept = newest(read([tmp_path]).times)
    assert len(kept) == len(CASES) and set(kept["run_id"]) == {"20261109T030000Z-abc"}


def test_other_protocols_are_other_cases_and_all_gpus_at_work_are_told(
    tmp_path: Path, chance: Chance
) -> None:
    write(tmp_path / "a.parquet", run(Gpu("a", 0), chance))
    write(tmp_path / "b.parquet", [replace(each, protocol="other") for each in run(Gpu("a", 1), chance)])
    write(tmp_path / "c.parquet", run(Gpu("a", 0), chance, together=2))
    times = read([tmp_path]).times
    assert times["case"].nunique() == 2 * len(CASES) and times["name"].nunique() == len(CASES)
    assert times.groupby("together").size().to_dict() == {False: 2 * len(CASES), True: len(CASES)}


def test_rows_that_failed_cannot_run_or_are_imported_are_no_times(tmp_path: Path, chance: Chance) -> None:
    written(tmp_path, [Gpu("a", 0, fails={"square8": "unsupported", "copy": "wrong"})], chance)
    written(tmp_path / "theirs", [Gpu("b", 0)], chance, change=lambda each: replace(each, source="NVIDIA"))
    fleet = read([tmp_path])
    assert {unit.node for unit in fleet.units.values()} == {"a"}
    assert fleet.failed["status"].tolist() == ["wrong"] and len(fleet.times) == len(CASES) - 2


def test_a_damaged_file_is_left_out_with_a_sentence(tmp_path: Path, chance: Chance) -> None:
    written(tmp_path, gpus(1, 3), chance)
    bad = next(iter(sorted(tmp_path.rglob("*.parquet"))))
    data = bytearray(bad.read_bytes())
    data[len(data) // 3] ^= 255
    bad.write_bytes(data)
    fleet = read([tmp_path])
    assert len(fleet.units) == 2 and len(fleet.left_out) == 1 and str(bad) in fleet.left_out[0]


def test_kinds_come_by_how_many_there_are(tmp_path: Path, chance: Chance) -> None:
    written(tmp_path, [Gpu("a", 0, "b200"), *gpus(1, 3)], chance)
    fleet = read([tmp_path])
    assert fleet.kinds == [H100, "b200"] and len(fleet.of_kind("b200")) == len(CASES)


# ---- what there should be


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
    assert missing(read([tmp_path])) == lacks


@pytest.mark.parametrize(
    ("text", "where"), [("a b c\n", ":1: 'a b c'"), ("a 8\nb -1\n", ":2: 'b -1'"), ("a 0", ":1: 'a 0'")]
)
def test_a_line_that_is_no_node_is_refused(tmp_path: Path, chance: Chance, text: str, where: str) -> None:
    written(tmp_path, [Gpu("a", 0)], chance)
    (tmp_path / EXPECTED).write_text(text)
    with pytest.raises(UserError, match="give a node's name, or its name and its number of units") as refusal:
        read([tmp_path])
    assert f"{EXPECTED}{where}" in str(refusal.value)


def test_a_list_that_cannot_be_read_is_refused(tmp_path: Path, chance: Chance) -> None:
    written(tmp_path, [Gpu("a", 0)], chance)
    with pytest.raises(UserError, match=r"nodes\.txt: the list of expected nodes cannot be read"):
        read([tmp_path], tmp_path / "nodes.txt")
    (tmp_path / "nodes.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match="cannot be read"):
        read([tmp_path], tmp_path / "nodes.txt")
