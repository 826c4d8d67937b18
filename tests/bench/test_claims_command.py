"""`python -m bench claims`: its tables, what it says of them, its exit codes, and what public timings say."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import kernels
from bench.__main__ import app
from bench.cli.claims import chosen, table_lines, verdicts
from bench.cli.guide_tables import WITHOUT_A_CLAIM, rules_by_device
from bench.interop.imported_rows import CLAIMS
from bench.judge.claims import VERDICTS, WITH_EFFECT, JudgedClaim
from bench.store.parquet import write
from bench.sweep.experiments import EXPERIMENTS, HALF, LACKING, RULES
from bench.sweep.grammar import TableClaims
from bench.sweep.load import SWEEPS, load
from bench.sweep.yaml_nodes import tree
from tests.bench.claims_made import timed
from tests.bench.rows import again
from tests.our_sweeps import declared
from tests.plots.synthetic import H100, ceilings, row

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "results" / "reference"
PUBLIC_GPUS = ("results/reference/public", "results/reference/engines")
PUBLIC = (1, 3, 14, 15, 16, 21, 29, 31, 34, 43, 49)
"""Rules that public tables of every one of the nine GPUs can decide; 54 needs one that has float8."""


def ignore(sentence: str) -> None:
    """Nothing is said of it."""


def bench(*words: object) -> Result:
    """What `python -m bench WORDS` does, in this process: starting one takes longer than judging."""
    return CliRunner().invoke(app, [*map(str, words)])


def result(folder: Path, sweeps: Any = None, name: str = "gemm/aligned_k") -> Path:
    """A run of an H100 with one sweep of products, multiples of 8 a quarter faster."""
    sweep, cases = load(SWEEPS / "gemm" / "aligned_k.yaml", kernels.problem, 132)
    rows = []
    for problem in (case.problem for case in cases if case.implementation == "cublas"):
        seconds = problem.flop / 3e14 * (1.25 if problem.parameters()["k"] % 8 else 1.0)  # type: ignore[operator]
        times = {"median_s": seconds, "low_s": 0.999 * seconds, "high_s": 1.001 * seconds}
        rows.append(row(H100, name, problem, "cublas", **times))
    kept = {name: sweep.declared} if sweeps is None else sweeps
    return write(folder / "run.parquet", [*ceilings(H100), *rows], kept)


def foreign(folder: Path, *sizes: int) -> Path:
    """Beside it, products of these K that somebody else measured."""
    theirs = {"source": "somebody", "run_id": "b", "sweep": "gemm/aligned_k"}
    return write(folder / "foreign.parquet", again((timed(1.0, k=k) for k in sizes), **theirs))


@pytest.fixture
def one_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checkout has the sweep of `result` alone: judging by all of them takes ten times as long."""
    monkeypatch.setattr("bench.cli.claims.SWEEPS", SWEEPS / "gemm" / "aligned_k.yaml")


def test_every_claim_and_json_say_the_same_and_name_what_was_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_rule_7 = [SWEEPS / "gemm" / "aligned_k.yaml", SWEEPS / "convolution" / "aligned_inputs.yaml"]
    monkeypatch.setattr("bench.cli.claims.SWEEPS", of_rule_7)
    path = result(tmp_path)
    shown = bench("claims", path, "--rule", 7, "--all")
    assert shown.exit_code == 0, shown.stderr
    assert "Rule 7: unaligned sizes use Tensor Cores too, but more slowly" in shown.stdout
    listed = json.loads(bench("claims", path, "--rule", 7, "--json").stdout)
    assert {each["claim"] for each in listed} == {"MM-01", "MM-01b", "MM-02", "CV-03b", "CV-03c"}
    for each in listed:
        (line,) = [line for line in shown.stdout.splitlines() if f" {each['claim']} " in line]
        assert line.startswith(f"{each['verdict']} ") and each["verdict"] in VERDICTS
        assert line.endswith(
            f"of {each['sweep']}; expected {each['expect']}){'; ' * bool(each['reason'])}{each['reason']}"
        )
    (of,) = [each for each in listed if each["claim"] == "MM-01"]
    assert of["verdict"] == "SUPPORTED" and of["low"] <= of["value"] <= of["high"] and of["bar"] == "ours"
    assert (of["holding"], of["failing"]) == (of["lines"], 0)
    assert f"{of['lines']} of {of['lines']} pairs: 1.25 times" in shown.stdout


@pytest.mark.usefixtures("one_sweep")
def test_what_is_decided_comes_first_and_then_the_command_that_decides_more(tmp_path: Path) -> None:
    lines = bench("claims", result(tmp_path)).stdout.splitlines()
    assert re.match(r"SUPPORTED +.*; (\d+) of \1 pairs: 1\.25 times \(rules? .*: MM-01 of gemm/", lines[0])
    assert not any("NOT " in line.split("expected")[0] for line in lines[: lines.index("")])
    counts = next(line for line in lines if line.startswith("h100-sxm: "))
    listed = json.loads(bench("claims", tmp_path, "--json").stdout)
    assert sum(map(int, re.findall(r"(\d+) [A-Z]", counts))) == len(listed)
    open_ids = [line for line in lines if line.startswith(("UNDECIDED", "TOO FEW"))]
    assert bool(open_ids) == lines[-1].startswith("next: pytest bench/ --benchmark --bench-budget inf ")


@pytest.mark.usefixtures("one_sweep")
def test_a_bar_that_is_younger_than_the_run_is_told(tmp_path: Path) -> None:
    other = {"gemm/aligned_k": {"claims": [{"id": "MM-01", "says": "x"}]}}
    for folder, sweeps, told in (("same", None, "before the run"), ("other", other, "after the run")):
        judged = verdicts([result(tmp_path / folder, sweeps)], kernels.problem, ignore, ignore)
        written = {each.declared.written for each in judged if each.declared.name == "gemm/aligned_k"}
        assert written == {told}


@pytest.mark.usefixtures("one_sweep")
def test_a_sweep_that_the_checkout_lacks_is_judged_by_the_claims_in_the_result(tmp_path: Path) -> None:
    near = {"of": {"k": "!%8"}, "to": {"k": "%8"}, "pair": "nearest k"}
    claims = [{"id": "MM-01", "says": "x", "ratio": near, "expect": "above 1.03"}]
    path = result(tmp_path, {"my/own": {"claims": claims}}, "my/own")
    judged = verdicts([path], kernels.problem, ignore, ignore)
    (mine,) = [each for each in judged if each.declared.name == "my/own"]
    assert (mine.verdict, mine.declared.written) == ("SUPPORTED", "in the result")
    assert "Not in this checkout, so by the result's own claims: my/own." in bench("claims", path).stdout
    (tmp_path / "run.parquet").unlink()
    remarks: list[str] = []
    old = result(tmp_path, {"my/own": {"claims": [{"id": "MM-01", "says": "x"}]}}, "my/own")
    judged = verdicts([old], kernels.problem, ignore, remarks.append)
    assert "my/own" not in {each.declared.name for each in judged}
    assert remarks == ["my/own: no sweep of this checkout, and the claims in the result have no test"]


def test_bad_input_is_one_sentence(tmp_path: Path) -> None:
    path = result(tmp_path)
    for words, says in {
        (path, "--rule", 55): "error: --rule 55: there are rules 1 to 54\n",
        (path, "--by", "sweep"): "error: --by sweep: the table is by claim, rule, experiment\n",
        (tmp_path / "none.parquet",): f"error: {tmp_path / 'none.parquet'}: no such file\n",
    }.items():
        refused = bench("claims", *words)
        assert (refused.exit_code, refused.stderr) == (2, says)
    refused = bench("claims", path, "--by", "experiment", "--json")
    assert refused.exit_code == 2 and refused.stderr.startswith("error: --json lists claims, or rules with ")


@pytest.mark.usefixtures("one_sweep")
def test_rules_as_json_hold_each_verdict_with_its_effect_and_run(tmp_path: Path) -> None:
    path = result(tmp_path)
    listed = json.loads(bench("claims", path, "--json").stdout)
    assert "(of k alone) |" in bench("claims", path, "--by", "rule", "--rule", 3).stdout, "of three sizes one"
    table = json.loads(bench("claims", path, "--by", "rule", "--json").stdout)["rules"]
    there = {(int(rule), device, *cell) for rule, on in table.items() for device, of in on.items()
             for cell in map(tuple, of)}  # fmt: skip
    (of,) = [each for each in listed if each["claim"] == "MM-01"]
    effect = f"{of['lines']} of {of['lines']} pairs: 1.25 times"
    assert {
        (rule, "h100-sxm", "SUPPORTED", "MM-01", effect, *of["runs"], of["lines"], 0, "k")
        for rule in of["rules"]
    } <= there, "aligned in k alone"
    decided = [each for each in listed if each["verdict"] in WITH_EFFECT]
    assert len(there) == sum(len(each["rules"]) for each in decided)


def test_nvidias_own_points_of_the_tile_quantization_figure(tmp_path: Path) -> None:
    """The figure that the claim is from supports it, or the claim is not what the figure says."""
    figure = REFERENCE / "published" / "nvidia_a100_tile_quantization.csv"
    done = bench("import", "csv", figure, "--bench-results", tmp_path)
    assert done.exit_code == 0, done.stderr
    judged = {each.claim.id: each for each in verdicts([tmp_path], kernels.problem, ignore, ignore)}
    assert {name: each.verdict for name, each in judged.items()} == {
        "MM-11a": "SUPPORTED", "MM-11b": "SUPPORTED", "MM-12": "NOT MEASURED"
    }  # fmt: skip
    flat, steep = judged["MM-11a"], judged["MM-11b"]
    assert flat.claim.expect == "below 1.15" and steep.claim.expect == "above 1.15"
    assert flat.effect is not None and steep.effect is not None and flat.imported
    # 0.2079 -> 0.2203, 0.3109 -> 0.3225 ms and so on; jumps of 1.36, 1.41 and 1.29 (documents: MM-11).
    assert flat.effect.value == pytest.approx(1.033, abs=0.005) and flat.effect.lines == 4
    edges = (steep.effect.low, steep.effect.value, steep.effect.high)
    assert edges == pytest.approx((1.29, 1.36, 1.41), abs=0.01)


@cache
def of_devices(*results: str) -> list[JudgedClaim]:
    """The verdicts on these results, which are paths as the pages have them."""
    return verdicts([ROOT / path for path in results], kernels.problem, ignore, ignore)


def committed(*results: str) -> list[JudgedClaim]:
    """The same; the public GPUs, which most pages show, are judged once, for each device is by itself."""
    groups = [[path for path in results if (path in PUBLIC_GPUS) == public] for public in (False, True)]
    every = [of_devices(*paths) for paths in groups if paths]
    assert not set.intersection(*({each.device for each in group} for group in every)) or len(every) == 1
    return chosen([each for group in every for each in group], None)


@pytest.fixture(scope="module")
def public() -> list[JudgedClaim]:
    """The verdicts on the nine public GPUs."""
    return committed(*PUBLIC_GPUS)


def test_every_public_gpu_has_a_verdict_or_a_reason_for_every_rule(public: list[JudgedClaim]) -> None:
    devices = {each.device for each in public}
    assert len(devices) == 9 and all(each.imported for each in public)
    for device in devices:
        rules = {rule for each in public if each.device == device for rule in each.claim.rules}
        assert rules >= {*PUBLIC, *(() if "a100" in device else (54,))}
    for each in public:
        assert (each.verdict in WITH_EFFECT) == (not each.reason)
        assert each.verdict != "NOT APPLICABLE" or each.claim.device.capability is not None
    assert {each.device for each in public if each.verdict == "NOT APPLICABLE"} == {
        "nvidia-h100-80gb-hbm3", "nvidia-h200", "nvidia-l40s"
    }, "no other of these GPUs lacks nvfp4"  # fmt: skip
    assert sum(each.verdict in ("SUPPORTED", "CONTRADICTED") for each in public) > 50


MARKED = re.compile(r"^<!-- python -m bench claims (.+?) -->\n(.*?)^<!-- end -->$", re.MULTILINE | re.DOTALL)
"""A table between the command that prints it and its end."""
PAGE = (REFERENCE / "verdicts.md").read_text()
TABLES = dict(MARKED.findall(PAGE))


@pytest.mark.parametrize("command", TABLES)
def test_the_page_of_verdicts_has_the_table_that_its_command_prints(command: str) -> None:
    results, by = command.split(" --by ")
    assert TABLES[command].splitlines() == list(table_lines(committed(*results.split()), by))  # type: ignore[arg-type]


def test_no_mark_is_without_its_table() -> None:
    marks = re.findall(r"^<!-- (.+) -->$", PAGE, re.MULTILINE)
    assert marks == [mark for command in TABLES for mark in (f"python -m bench claims {command}", "end")]
    assert sorted(command.split()[-1] for command in TABLES) == ["claim", "experiment", "rule"]
    readme = " ".join((ROOT / "README.md").read_text().split())
    assert f"guides' {len(RULES)} rules and the guides' {len(EXPERIMENTS)} experiments" in readme


def test_the_committed_verdicts_by_rule_are_those_of_the_committed_rows() -> None:
    """results/reference/rules.json is of all public rows; those of this sample are committed, too."""
    judged = committed("results/reference/public", "results/reference/engines")
    runs = {name for each in judged for name in each.runs}
    kept = json.loads((REFERENCE / "rules.json").read_text())["rules"]
    of_sample = [
        (rule, device, *cell)
        for rule, on in kept.items()
        for device, cells in on.items()
        for cell in cells
        if {*cell[3].split(", ")} <= runs
    ]
    again = rules_by_device(judged)["rules"]
    found = [(rule, device, *cell) for rule, on in again.items() for device, of in on.items() for cell in of]
    assert len(found) > 100 and sorted(of_sample) == sorted(found)


@pytest.mark.usefixtures("one_sweep")
@pytest.mark.parametrize("others", [[], ["another"]], ids=["of one device each", "one of two devices"])
def test_files_of_a_device_are_judged_together_whatever_else_one_of_them_holds(
    tmp_path: Path, others: list[str]
) -> None:
    for name, first, devices in (("a", 4000, [*others, "d"]), ("b", 4032, ["d"])):
        sizes = range(first, first + 32)
        facts = {"source": "somebody", "sweep": "gemm/aligned_k", "run_id": name}
        rows = [
            each
            for device in devices
            for each in again((timed(1e-6 * k, k=k) for k in sizes), **facts, device=device)
        ]
        write(tmp_path / f"{name}.parquet", rows, {})
    judged = verdicts([tmp_path], kernels.problem, ignore, ignore)
    (of_pairs,) = [each for each in judged if each.device == "d" and each.claim.id == "MM-01"]
    assert of_pairs.effect is not None and of_pairs.effect.lines == 8 and of_pairs.runs == ("a", "b")


@pytest.mark.usefixtures("one_sweep")
def test_two_kinds_of_rows_of_one_device_are_judged_apart(tmp_path: Path) -> None:
    result(tmp_path)
    foreign(tmp_path, 1, 8)
    judged = verdicts([tmp_path], kernels.problem, ignore, ignore)
    mine = [each for each in judged if each.claim.id == "MM-01"]
    assert [(each.imported, each.verdict) for each in mine] == [(False, "SUPPORTED"), (True, "TOO FEW")]


def claims_of_sweeps() -> list[tuple[str, Sequence[int]]]:
    """Number and rules of every claim about runs of our own."""
    ours = [claim for sweep in declared().values() for claim in sweep.get("claims", ())]
    return [(claim["id"], claim.get("rules", ())) for claim in ours]


def claims_there_are() -> list[tuple[str, Sequence[int]]]:
    """The same with those about imported tables."""
    tables = [TableClaims.model_validate(tree(path.read_bytes()).data()) for path in CLAIMS.glob("*.yaml")]
    return claims_of_sweeps() + [(claim.id, claim.rules) for table in tables for claim in table.claims]


def test_every_rule_has_a_claim_or_what_it_lacks() -> None:
    spoken = {rule for _, rules in claims_there_are() for rule in rules}
    assert set(RULES) - spoken <= set(LACKING) and set(HALF) <= spoken - set(LACKING)


def test_every_experiment_has_a_claim_or_says_why_not() -> None:
    named, ours = ({claim[:5] for claim, _ in claims} for claims in (claims_there_are(), claims_of_sweeps()))
    assert set(EXPERIMENTS) - named <= set(WITHOUT_A_CLAIM) <= set(EXPERIMENTS) - ours
