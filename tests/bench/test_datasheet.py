"""Device files against the formula, against their sources and against each other."""

import csv
import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from bench.device.datasheet import FILES, Datasheet, datasheets, find_datasheet
from bench.errors import UserError

SHEETS = {sheet.name: sheet for sheet in datasheets()}
each_sheet = pytest.mark.parametrize("sheet", SHEETS.values(), ids=SHEETS)

NEAR_MISSES = [
    "Tesla M40 24GB",
    "TITAN X",
    "NVIDIA GeForce RTX 4080 SUPER",
    "NVIDIA GH200 144G HBM3e",
    "AMD Instinct MI250X / MI250",
    "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
    "NVIDIA H200 NVL",
    "NVIDIA B300",
    "NVIDIA GeForce RTX 4090 D",
    "NVIDIA GeForce RTX 4090 Laptop GPU",
    "NVIDIA A100",
    "Tesla V100-SXM3-32GB",
    "nvidia l4",
    "",
]


FEW_PEAKS = {
    "NVIDIA Tesla M40 12 GB",
    "NVIDIA GeForce GTX TITAN X (Maxwell)",
    "NVIDIA TITAN Xp",
    "NVIDIA GeForce GTX 1080 Ti",
    "NVIDIA Tesla P40",
    "NVIDIA TITAN V",
    "NVIDIA GeForce RTX 2070 SUPER",
    "NVIDIA RTX 6000 Ada Generation",
    "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
    "AMD Radeon RX 6800 XT",
}
"""Cards with fewer than three published peaks that their boost clock gives."""
CORES = {
    (5, 2): (128, 4),
    (6, 0): (64, 32),
    (6, 1): (128, 4),
    (7, 0): (64, 32),
    (7, 5): (64, 2),
    (8, 0): (64, 32),
    (8, 6): (128, 2),
    (8, 9): (128, 2),
    (9, 0): (128, 64),
    (10, 0): (128, 64),
    (10, 3): (128, 2),
    (12, 0): (128, 2),
}
"""Compute capability -> float32 and float64 FMA of an SM in a clock, by the CUDA programming guide."""
MEMORY = {
    slug: (int(bus_bit), float(gbit_per_s))
    for slug, bus_bit, gbit_per_s in csv.reader(
        Path(__file__).with_name("memory_buses.csv").read_text().splitlines()[1:]
    )
}
"""File -> width of the memory's bus and Gbit/s of a pin, by the same database as clocks and SMs.

Without those that are sold with less than that (H200, MI325X) and those whose memory no document describes.
"""


@pytest.mark.parametrize("slug", MEMORY)
def test_bandwidth_is_what_bus_and_pins_give(slug: str) -> None:
    """Both are printed with two or three digits: the third is off by half at most, 0.5 % of each."""
    (sheet,) = (each for each in SHEETS.values() if each.slug == slug)
    bus_bit, gbit_per_s = MEMORY[slug]
    assert sheet.bandwidth_byte_per_s == pytest.approx(bus_bit * gbit_per_s * 1e9 / 8, rel=0.01)


@each_sheet
def test_an_sm_has_the_cores_of_its_capability(sheet: Datasheet) -> None:
    if sheet.capability is None:
        return
    for dtype, cores in zip(("float32", "float64"), CORES[sheet.capability], strict=True):
        rate = sheet.rates.get(("vector", dtype))  # type: ignore[call-overload]
        if rate and rate.fma_per_clock_per_sm:
            assert rate.fma_per_clock_per_sm == cores


def test_published_peaks_are_what_units_and_clock_give() -> None:
    compared = []
    for sheet in SHEETS.values():
        if sheet.boost_clock_hz is None or sheet.tensor_clock_hz is None:
            continue
        for (unit, dtype), rate in sheet.rates.items():
            if rate.flop_per_s is not None:
                computed = sheet.computed_flop_per_s(unit, dtype)
                assert computed == pytest.approx(rate.flop_per_s, rel=0.013), (sheet.name, dtype)
                compared.append(sheet.name)
    # A file may have no peaks yet.
    texts = {name: (FILES / f"{sheet.slug}.yaml").read_text() for name, sheet in SHEETS.items()}
    filled_in = {name for name, text in texts.items() if "not filled in yet" not in text}
    assert {name for name in filled_in if Counter(compared)[name] < 3} == FEW_PEAKS


def cited(part: Any) -> Iterator[dict[str, Any]]:
    """Whatever in a file has a source."""
    if isinstance(part, dict) and "source" in part:
        yield part
    for inner in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        yield from cited(inner)


@pytest.mark.parametrize("path", sorted(FILES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_number_has_a_source_that_is_used_or_a_note_why_it_is_unknown(path: Path) -> None:
    file = yaml.safe_load(path.read_text())
    assert {entry["source"] for entry in cited(file)} == set(file["sources"])
    for entry in cited(file):
        known = entry.get("value") or entry.get("fma_per_clock_per_sm") or entry.get("runs_on")
        assert known or entry.get("note"), entry
    # A published figure is never passed off as read first-hand unless it is.
    words = ("second-hand", "memory", "guides", "our own", "no document", "read at", "datasheets")
    assert all(len(text) > 20 and any(map(text.count, words)) for text in file["sources"].values())


def test_each_name_of_a_device_finds_its_own_file() -> None:
    names = [(name, sheet) for sheet in SHEETS.values() for name in sheet.match]
    assert [find_datasheet(name) for name, _ in names] == [sheet for _, sheet in names]


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_a_near_miss_finds_nothing(name: str) -> None:
    assert find_datasheet(name) is None


@each_sheet
def test_peaks_are_in_a_sensible_order(sheet: Datasheet) -> None:
    """As far as they are known: the file of a new GPU may leave them open."""

    def peak(unit: str, dtype: str) -> float:
        return sheet.peak_flop_per_s(unit, dtype) or math.nan

    def in_order(*peaks: float) -> bool:
        known = [each for each in peaks if not math.isnan(each)]
        return known == sorted(known)

    half, tf32, byte = (peak("matrix", dtype) for dtype in ("float16", "tf32", "int8"))
    assert in_order(peak("matrix", "float64"), peak("matrix", "float32"), tf32 * 1.001)
    for twice, dtype in ((half, "tf32"), (peak("matrix", "float8_e4m3"), "float16")):
        once = peak("matrix", dtype)
        assert math.isnan(twice + once) or twice == pytest.approx(2 * once, rel=0.02)
    bfloat16 = peak("matrix", "bfloat16") * (2 if sheet.slug == "mi100" else 1)
    assert math.isnan(half + bfloat16) or half == bfloat16
    if sheet.capability == (10, 3):
        # Blackwell Ultra gave up int8: slower than bfloat16, at a rate that its clocks do not explain.
        assert math.isnan(byte)
    elif not math.isnan(tf32):
        assert in_order(1.99 * half, byte)
    assert in_order(peak("vector", "float64"), peak("vector", "float32"), half)
    # A sparse figure would be twice that: no float16 tensor rate exceeds 32 float32 FMA units' work.
    assert in_order(half, 32 * peak("vector", "float32"))
    assert 1e11 < (sheet.bandwidth_byte_per_s or 1e12) < 1e13
    assert sheet.l2_byte < sheet.memory_byte / 100
    assert not sheet.derived


def test_a_matrix_product_without_tensor_cores_has_the_peak_of_the_vector_units() -> None:
    v100, h100 = SHEETS["NVIDIA V100 SXM2 16 GB"], SHEETS["NVIDIA H100 SXM5 80 GB"]
    assert v100.peak_flop_per_s("matrix", "float64") == v100.peak_flop_per_s("vector", "float64") == 7.8e12
    assert h100.peak_flop_per_s("matrix", "float32") == 66.9e12
    assert h100.peak_flop_per_s("matrix", "float64") == 66.9e12
    assert h100.peak_flop_per_s("vector", "float64") == 33.5e12


def test_a_type_without_units_or_rate_has_no_peak() -> None:
    assert SHEETS["NVIDIA T4"].peak_flop_per_s("matrix", "bfloat16") is None
    assert SHEETS["NVIDIA B200 SXM 180 GB (HGX)"].peak_flop_per_s("vector", "float16") is None
    # Rate known, peak not published: the formula.
    assert SHEETS["NVIDIA L4"].peak_flop_per_s("vector", "float64") == 58 * 2 * 2 * 2040e6


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("power_w:", "watt:", "datasheets/one.yaml: power_w: Field required"),
        ("name: ", "colour: red\nname: ", "colour: unknown key; there is match, compute_capability"),
        ("value: 132,", "value: -1,", "sm_count.value: Input should be greater than 0"),
        ("989.4e+12", "989.4e12", "matrix.float16.flop_per_s: Input should be a valid number"),
        ("name: ", "name: [", "datasheets/one.yaml:"),
    ],
)
def test_a_mistake_in_a_file_is_one_sentence(tmp_path: Path, old: str, new: str, complaint: str) -> None:
    text = (FILES / "h100_sxm5.yaml").read_text()
    assert old in text
    (tmp_path / "bench/device/datasheets").mkdir(parents=True)
    (tmp_path / "bench/device/datasheets/one.yaml").write_text(text.replace(old, new, 1))
    with pytest.raises(UserError) as raised:
        datasheets(tmp_path / "bench/device/datasheets")
    assert complaint in str(raised.value)
    assert str(raised.value).startswith("bench/device/datasheets/one.yaml:")
    assert "\n" not in str(raised.value)
