"""Result files -> units, nodes and times; what is missing, left out and refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench.errors import UserError
from bench.fleet.observed import EXPECTED, missing, newest, read, tags_of_all
from bench.store.parquet import write
from tests.bench.fleet_made import CASES, H100, Gpu, gpus, run, written

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


def test_a_tag_that_all_units_have_is_said_of_all(tmp_path: Path, chance: Chance) -> None:
    units = [Gpu("a", i, tags={"simulated": "yes", "rack": f"r{i}"}) for i in range(2)]
    assert tags_of_all(read([written(tmp_path, units, chance)]).units.values()) == ["simulated yes"]


def test_alone_and_together_are_kept_apart(tmp_path: Path, chance: Chance) -> None:
    times = read([written(tmp_path, [Gpu("a", 0), Gpu("a", 1)], chance, together=True)]).times
    assert times.groupby("together").size().to_dict() == {False: 2 * len(CASES), True: 2 * len(CASES)}


def test_the_newest_time_counts_whatever_the_order_of_the_files(tmp_path: Path, chance: Chance) -> None:
    for name, day in (("a", 9), ("b", 2), ("c", 5)):
        write(tmp_path / f"{name}.parquet", run(Gpu("a", 0), chance, day=day))
    kept = newest(read([tmp_path]).times)
    assert len(kept) == len(CASES) and set(kept["run_id"]) == {"20261109T030000Z-abc"}


def test_a_row_that_failed_is_no_time_and_one_that_cannot_run_no_failure(
    tmp_path: Path, chance: Chance
) -> None:
    fleet = read(
        [written(tmp_path, [Gpu("a", 0, fails={"square8": "unsupported", "copy": "wrong"})], chance)]
    )
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


def said(tmp_path: Path, units: list[Gpu], chance: Chance, expected: str | None = None) -> list[str]:
    written(tmp_path, units, chance)
    if expected is not None:
        (tmp_path / EXPECTED).write_text(expected)
    return missing(read([tmp_path]))


def test_without_a_list_the_usual_number_of_units_is_expected(tmp_path: Path, chance: Chance) -> None:
    units = [gpu for gpu in gpus(3, 4) if (gpu.node, gpu.slot) != ("node001", 2)]
    assert said(tmp_path, units, chance) == ["MISSING node001: 1 of 4 units (0000:2b:00.0)"]


def test_nodes_whose_slots_differ_lack_nothing(tmp_path: Path, chance: Chance) -> None:
    units = [Gpu(f"n{node}", slot) for node, slots in enumerate([(0, 1), (2, 3), (4, 5)]) for slot in slots]
    assert said(tmp_path, units, chance) == []


def test_most_nodes_decide_though_no_two_have_the_same_slots(tmp_path: Path, chance: Chance) -> None:
    units = [Gpu("n0", 0), *(Gpu(f"n{i}", 2 * i + j) for i in (1, 2, 3) for j in (0, 1))]
    assert said(tmp_path, units, chance) == ["MISSING n0: 1 of 2 units"]


def test_a_list_says_which_nodes_there_should_be(tmp_path: Path, chance: Chance) -> None:
    expected = "# plan\nnode000 2\nnode001\nnode9 8  # new\nnode10\n\n"
    assert said(tmp_path, gpus(2, 1), chance, expected) == [
        "MISSING node000: 1 of 2 units",
        "MISSING node9 (8 units)",
        "MISSING node10",
    ]


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
