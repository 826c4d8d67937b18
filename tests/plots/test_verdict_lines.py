"""Below a sweep's figures stands what its rows decide, by the claims that the result itself keeps."""

import dataclasses
import itertools
import re
from pathlib import Path
from typing import Any

import kernels
from bench.cli.claims import verdicts
from bench.store.schema import Measurement
from kernels.gemm.problem import Gemm
from plots.figures.every_figure import of_sweeps, pages
from tests.our_sweeps import declared
from tests.plots.drawn import loaded, opened, said
from tests.plots.synthetic import CPU, H100, NO_TIME, Machine, ceilings, row

NEAREST = {"of": {"k": "!%8"}, "to": {"k": "%8"}, "pair": "nearest k", "per": "flop"}


def claim(experiment: str, expect: str = "above 1.03", **more: Any) -> dict[str, Any]:
    return {
        "id": experiment,
        "says": "K divisible by 8 is fastest",
        "expect": expect,
        "ratio": NEAREST,
    } | more


def aligned(machine: Machine = H100, sweep: str = "gemm/mine", **facts: Any) -> list[Measurement]:
    """Products of which those with an odd K take a quarter longer."""
    made = []
    for m, k, library in itertools.product((1024, 2048, 4096), range(4088, 4105), machine.libraries):
        problem = Gemm(m=m, n=4096, k=k, dtype="float32")
        seconds = 3e-3 * m * k / 2**24 * (1.25 if k % 8 else 1.0)
        times = {"median_s": seconds, "low_s": seconds * 0.999, "high_s": seconds * 1.001}
        made.append(row(machine, sweep, problem, library, **(times | facts)))
    return [*ceilings(machine), *made]


def drawn(folder: Path, rows: list[Measurement], sweeps: dict[str, Any]) -> dict[str, str]:
    """Name -> words of each figure of the sweeps in a result file with these rows and sweeps."""
    run = loaded(folder, rows, sweeps)
    of = (page for sweep, _, drawings in of_sweeps(run, sweeps) if sweep in sweeps for page in drawings)
    return {stem: said(figure) for stem, figure in opened(of).items()}


def test_a_figure_says_what_the_command_says(tmp_path: Path) -> None:
    sweep = "gemm/aligned_k"
    sweeps = {sweep: declared()[sweep]}
    drawings = opened(pages(loaded(tmp_path, aligned(sweep=sweep), sweeps), sweeps))
    figures = {stem: said(figure) for stem, figure in drawings.items()}
    judged = verdicts([tmp_path], kernels.problem, lambda line: None, lambda line: None)
    (of,) = [each for each in judged if each.declared.name == sweep and each.claim.id == "MM-01"]
    assert of.verdict == "SUPPORTED" and of.effect is not None
    expected = f"MM-01, rules 3, 7 and 13: SUPPORTED, {of.effect}, expected above 1.03. {of.claim.says}."
    assert expected in figures[f"{sweep}-duration"]
    assert not [stem for stem, words in figures.items() if sweep not in stem and "MM-01" in words]


def test_the_claims_of_the_result_count_and_not_those_of_the_checkout(tmp_path: Path) -> None:
    sweep = "gemm/aligned_k"
    other = {"title": "x", "claims": [claim("MM-01", "below 1.1", rules=[7])]}
    text = drawn(tmp_path, aligned(sweep=sweep), {sweep: other})[f"{sweep}-duration"]
    contradicted = r"CONTRADICTED, 0 of \d+ pairs: 1\.25 times, expected below 1\.1\. K div"
    assert re.search(f"MM-01, rule 7: {contradicted}", text)


def test_few_missing_and_suspect_rows_and_other_devices_are_told(tmp_path: Path) -> None:
    claims = [
        claim("MM-01", least=50),
        claim("MM-02", device={"kind": "cpu"}),
        claim("MM-03", ratio=NEAREST | {"of": {"k": 1}}),
        claim("MM-04", where={"implementation": "triton-split-k"}),
    ]
    rows = aligned()
    rows[-3] = dataclasses.replace(rows[-3], settled=False)  # k = 4103
    no_such = row(H100, "gemm/mine", Gemm(m=4096, n=4096, k=4096, dtype="float32"), "triton-split-k")
    why = {"status": "unsupported", "reason": "needs another GPU"}
    rows.append(dataclasses.replace(no_such, **(NO_TIME | why)))  # type: ignore[arg-type]
    text = drawn(tmp_path, rows, {"gemm/mine": {"title": "x", "claims": claims}})["gemm/mine-duration"]
    assert re.search(r"TOO FEW rows to decide: MM-01 \d+ of 50 \(1 suspect row left out\)\.", text)
    assert "MM-03: NOT MEASURED (no two of" in text
    assert "MM-02, MM-04: NOT APPLICABLE (about cpu devices; needs another GPU)." in text


def test_a_cpu_and_a_gpu_each_have_their_own_verdict(tmp_path: Path) -> None:
    kept = {"gemm/mine": {"title": "x", "claims": [claim("MM-01", device={"kind": "cuda"})]}}
    for machine, says in ((H100, "MM-01: SUPPORTED, "), (CPU, "MM-01: NOT APPLICABLE (about cuda devices).")):
        assert says in drawn(tmp_path, aligned(machine), kept)["gemm/mine-duration"]
