"""Suites: what their entries take of the sweeps, ours among them, and how a broken one is refused."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import kernels
from bench.__main__ import app
from bench.cli.list_cases import of_datasheet
from bench.device.datasheet import Datasheet, datasheets
from bench.device.detect import Device
from bench.errors import UserError
from bench.model.roofline import datasheet_s
from bench.runner.comparisons import (
    LAUNCH_S,
    cases_of_suite,
)
from bench.runner.limits import impossible
from bench.runner.options import Options, run_for
from bench.sweep.load import Case, every_sweep, sweep_name
from bench.sweep.suites import CORE, TOUR, LoadedSuite, load_suite, suites
from tests.bench.several import H100, gpu
from tests.drawing import drawn

CPU = replace(gpu(0), kind="cpu", index=None, capability=None, sm_count=2)


def taken(folder: Path, entries: str, device: Any = H100) -> list[Case]:
    """The cases, ceilings apart, of a suite of these entries."""
    path = folder / "suites.yaml"
    path.write_text(f"mine:\n  title: t\n  entries:\n{entries}")
    suite = load_suite("mine", kernels.problem, device.sm_count, path)
    chosen = cases_of_suite(suite, device)
    assert any(case.role == "roof" for case in chosen)
    return [case for case in chosen if case.role == "measurement"]


def chosen(name: str, device: Device) -> tuple[LoadedSuite, list[Case]]:
    """A suite of ours as this device gets it, and its cases."""
    suite = load_suite(name, kernels.problem, device.sm_count)
    return suite, cases_of_suite(suite, device)


def test_an_entry_without_a_choice_takes_all_of_its_sweeps(tmp_path: Path) -> None:
    cases = taken(tmp_path, "    - {sweeps: [gemm/square, softmax]}\n")
    softmax = {name for path in every_sweep() if (name := sweep_name(path)).startswith("softmax/")}
    assert {case.sweep for case in cases} == {"gemm/square"} | softmax and len(softmax) > 1
    assert {case.implementation for case in cases} >= {"onednn", "cublas"}, "what cannot run gets a row"


def test_where_and_points_narrow_and_entries_add_up(tmp_path: Path) -> None:
    entry = "    - {sweeps: gemm/square, where: {dtype: float16, implementation: [cublas, triton]}"
    every = taken(tmp_path, f"{entry}}}\n")
    assert {(case.problem.dtype, case.implementation) for case in every} == {
        ("float16", "cublas"),
        ("float16", "triton"),
    }
    few = taken(tmp_path, f"{entry}, points: 3}}\n")
    assert len(few) == 3 * len({case.series for case in few}) == 3 * len({case.series for case in every})
    few = [case for case in few if case.series == few[0].series]
    line = [case for case in every if case.series == few[0].series]
    assert few[0].key == line[0].key and few[-1].key == line[-1].key
    both = taken(tmp_path, f"{entry}, points: 3}}\n{entry}, points: 2}}\n")
    assert {case.key for case in both} > {case.key for case in few}


def test_an_entry_of_claims_takes_what_they_compare(tmp_path: Path) -> None:
    cases = taken(tmp_path, "    - {sweeps: gemm/aligned_k, claims: all}\n")
    every = taken(tmp_path, "    - {sweeps: gemm/aligned_k}\n")
    assert 0 < len(cases) < len(every) / 4
    assert all(not case.missing("cuda", H100.capability) for case in cases)


def test_every_sweep_of_ours_is_in_a_suite_and_all_are_in_full() -> None:
    names = {sweep_name(path) for path in every_sweep()}
    assert list(suites()) == [TOUR, CORE, "fleet", "accept", "full"]
    for name in suites():
        suite = load_suite(name, kernels.problem, H100.sm_count)
        assert {each.name for each in suite.loaded} <= names
    assert {each.name for each in suite.loaded} == names


def test_only_the_ceilings_that_a_suite_names_come_along(tmp_path: Path) -> None:
    path = tmp_path / "suites.yaml"
    path.write_text("mine:\n  title: t\n  ceilings: [launch, one_tile]\n  entries: [{sweeps: gemm/beta}]\n")
    suite = load_suite("mine", kernels.problem, H100.sm_count, path)
    cases = cases_of_suite(suite, H100)
    assert {each.sweep for each in cases} == {"ceilings/launch", "ceilings/one_tile", "gemm/beta"}


# PyTorch's builds begin with Volta, and only CUDA's GPUs are looked for.
MEASURED = [sheet for sheet in datasheets() if sheet.capability and sheet.capability >= (7, 0)]


@pytest.mark.parametrize(
    "sheet",
    drawn(MEASURED, 2, "GPUs of fleets"),
    ids=lambda sheet: sheet.slug,
)
def test_the_suite_of_fleets_has_every_class_of_work(sheet: Datasheet) -> None:
    """Of every GPU two cases of each class at least, of launches one; transfers are a GPU's alone."""
    device = of_datasheet(sheet)
    _, cases = chosen("fleet", device)
    able = [case for case in cases if impossible(case, device) is None]
    classes = Counter(map(class_of, able))
    assert len(able) <= 18 and classes["launch"] >= 1
    assert all(classes[name] >= 2 for name in ("compute", "memory", "cache", "transfer")), classes


def class_of(case: Case) -> str:
    if case.problem.operator in ("launch", "transfer"):
        return case.problem.operator
    if case.cache == "warm":
        return "cache"
    return "compute" if case.problem.flop >= 64 * case.problem.byte else "memory"


@pytest.mark.parametrize("name", [TOUR, pytest.param(CORE, marks=pytest.mark.deep)])
def test_our_suites_find_cases_on_a_processor(name: str) -> None:
    _, cases = chosen(name, CPU)
    mine = [case for case in cases if case.role == "measurement"]
    assert len({case.sweep for case in mine}) >= 6 and not any(case.missing("cpu", None) for case in mine)


def of(slug: str) -> Device:
    """The GPU of this datasheet."""
    return of_datasheet(next(sheet for sheet in MEASURED if sheet.slug == slug))


@pytest.mark.parametrize("slug", ["h100_sxm5", "t4"])
def test_the_tour_of_a_gpu_shows_ours_beside_the_libraries(slug: str) -> None:
    """Products of either 16-bit type, and what memory limits, from a launch to four times the L2 cache."""
    device = of(slug)
    able = [case for case in chosen(TOUR, device)[1] if impossible(case, device) is None]
    square: dict[tuple[str, str], set[int]] = {}
    curves: dict[tuple[object, ...], list[Case]] = {}
    for case in able:
        name, of_case = case.problem.operator, case.problem.parameters()
        if case.sweep == "gemm/square":
            square.setdefault((case.implementation, case.problem.dtype), set()).add(of_case["m"])
        elif name in ("batchnorm", "activations", "pooling"):
            curves.setdefault((name, of_case["direction"], case.implementation), []).append(case)
    volta = device.capability is not None and device.capability < (8, 0)  # no bfloat16, no product by Triton
    asked = [("cublas", "float16")] if volta else list(product(("cublas", "triton"), ("float16", "bfloat16")))
    assert {*asked} == {*square}
    for sizes in square.values():
        assert len({m for m in sizes if m % 2 == 0}) >= 8 and len({m for m in sizes if m % 2}) >= 4
    library = {"batchnorm": "cudnn", "activations": "aten", "pooling": "aten"}
    for name, direction, who in product(library, ("forward", "backward"), (0, 1)):
        curve = curves[name, direction, (library[name], "triton")[who]]
        byte = [case.problem.byte for case in curve]
        assert max(byte) >= 4 * device.cache_byte and len({*byte}) >= 3, (name, direction, who)
        least_s = datasheet_s(0, min(byte), "vector", "float16", device.datasheet)
        assert least_s is not None and least_s < 10 * LAUNCH_S, (name, direction, who)


GOOD = "mine:\n  title: t\n  entries:\n    - {sweeps: gemm/square}\n"
OF_TITLES = [
    ("''", ":2: "),
    ("t\n  budget_s: 5", ":3: budget_s must be a mapping, not 5"),
    ("t\n  budget_s: {cpu: 5}", ":3: budget_s needs the key 'cuda'"),
    ("t\n  visits: {cpu: 3, cuda: 1}", ":3: a suite has no key 'visits'"),
    ("t\n  ceilings: []", ":3: "),
    (
        "t\n  ceilings:\n  - launch\n  - stram",
        ":5: sweeps/ has no sweep 'ceilings/stram' (did you mean ceilings/stream?)",
    ),
]
"""What a suite says after `title:`, and from the third line on; and what is said of that."""
OF_ENTRIES = [
    ("squere", "sweeps/ has no sweep 'gemm/squere'"),
    ("square, point: 3", "an entry has no key 'point'"),
    ("square, points: 1", "points must be at least 2, not 1"),
    ("growing_k, claims: MM-6", "gemm/growing_k has no claim 'MM-6' (did you mean MM-06?)"),
    ("square, claims: all, points: 3", "claims takes what"),
    ("square, device: {kind: gpu}", "kind cannot be 'gpu'; it is one of cpu, cuda"),
    ('square, device: {capability: "8"}', "capability is the least"),
    ("square, where: {o: 3}", "an entry about gemm has no column 'o'"),
    ('square, where: {m: "%0"}', "'%0' is no condition"),
    ("square, where: {implementation: cudnn}", "gemm has no implementation 'cudnn'"),
    ("square, where: {m: 7}", "where holds for no case of gemm/square"),
]
"""The same of an entry on the fourth line, after `sweeps: gemm/`."""
BROKEN = [
    ("[3]", ":1: suites are a mapping from names to suites, not a list"),
    (
        "mine:\n  titel: t\n",
        ":2: a suite has no key 'titel' (did you mean title?); it has title, budget_s, ",
    ),
    ("mine:\n  title: t\n", ":1: a suite needs the key 'entries'"),
    ("mine:\n  entries: [{sweeps: all}]\n", ":1: a suite needs the key 'title'"),
    *((GOOD.replace(" t\n", f" {title}\n", 1), says) for title, says in OF_TITLES),
    *((GOOD.replace("square", entry), f":4: {says}") for entry, says in OF_ENTRIES),
    (GOOD.replace("gemm/square", "[]"), ":4: "),
    (GOOD + "mine:\n  title: t\n", ":5: "),
    ("mine: [", ":2: this is not YAML"),
]


@pytest.mark.parametrize(("text", "says"), BROKEN)
def test_a_broken_suite_is_one_sentence_with_file_and_line(text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "suites.yaml"
    path.write_text(text)
    with pytest.raises(UserError) as refusal:
        cases_of_suite(load_suite("mine", kernels.problem, 2, path), CPU)
    sentence = str(refusal.value)
    assert says in sentence and sentence.startswith(str(path)) and len(sentence.splitlines()) == 1


def test_what_cannot_go_together_or_is_not_there_is_refused(tmp_path: Path) -> None:
    for options, says in (
        (
            Options(suite="turo"),
            "has no suite 'turo' (did you mean tour?); it has tour, core, fleet, accept, full",
        ),
        (Options(suite="tour", sweeps=["gemm"]), "--bench-suite chooses among all sweeps"),
        (Options(suite="tour", cases=["x"]), "leave it out, or --bench-case"),
    ):
        with pytest.raises(UserError, match="--bench-suite") as refusal:
            run_for(options, kernels.problem, opens=False)
        assert says in str(refusal.value)
    done = CliRunner().invoke(app, ["list", "gemm", "--suite", "tour"])
    assert done.exit_code == 2 and "chooses among all sweeps" in done.output


def test_a_suite_is_listed_with_its_cases_and_what_they_decide() -> None:
    done = CliRunner().invoke(app, ["list", "--suite", "tour", "--cases", "--on", "h100_sxm5"])
    assert done.exit_code == 0
    assert "gemm/square-triton-bfloat16-" in done.output and "H100 SXM5 80 GB: 212 cases of" in done.output
    assert "enough for verdicts on 20 claims" in done.output
