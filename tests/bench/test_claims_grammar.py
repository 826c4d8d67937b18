"""The grammar of claims: what a claim may say, and that every mistake is one sentence with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

import kernels
from bench.errors import UserError
from bench.interop.imported_rows import CLAIMS
from bench.sweep.load import load, table_claims

HEAD = """title: A sweep
source: {document: A guide}
operator: gemm
cases:
  - {m: 64, n: 64, k: [1, 2], dtype: float32}
claims:
"""
SLOPE = "slope: {x: k}, expect: above 1"
RATIO = "id: MM-01, says: x, expect: above 1, ratio"
NUMBERS = "m, n, k, beta, batch"
PARAMETERS = "dtype, m, n, k, layout, beta, pitch, batch, sparsity"
KINDS = "ratio, slope, spread, bound, jumps, knee, share"
HOW = (
    "write %8, !%8, %16B (bytes), >=64, <0.5 ridge, x3 inputs, several with a space between them, or ~ and a "
    "regular expression"
)


def mm01(rest: str) -> str:
    return f"id: MM-01, says: x, {rest}"


def where(select: str) -> str:
    return mm01(f"where: {{{select}}}, {SLOPE}")


MISTAKES = {
    # what it is
    f"id: MM-1, says: x, {SLOPE}": "id must be an id such as MM-01, not 'MM-1'",
    f"id: MM-99, says: x, {SLOPE}": "there is no experiment MM-99; there are MM-01 to MM-23",
    f"says: x, {SLOPE}": "a claim needs the key 'id'",
    mm01("slope: {x: k}"): "a claim needs the key 'expect'",
    mm01(f"rules: [3, 55], {SLOPE}"): "there is no rule 55; there are 1 to 54",
    mm01(f"least: 1, {SLOPE}"): "least must be at least 2, not 1",
    mm01(f"Bar: 1, {SLOPE}"): "a claim has no key 'Bar' (did you mean bar?); it has id, rules, says, "
    f"device, where, {KINDS}, expect, bar, least",
    # its test
    mm01("expect: above 1"): f"a claim has exactly one test of {KINDS}; MM-01 has none",
    mm01(f"spread: {{over: layout}}, {SLOPE}"): f"a claim has exactly one test of {KINDS}; "
    "MM-01 has slope and spread",
    mm01("slope: {y: k}, expect: above 1"): "slope has no key 'y'; it has x, of",
    mm01("slope: {x: layout}, expect: above 1"): "a claim about gemm has no parameter 'layout'; "
    f"it has {NUMBERS}, flop, byte, byte_moved",
    mm01("spread: {over: tile}, expect: above 1"): "a claim about gemm has no parameter 'tile'; "
    f"it has {PARAMETERS}, implementation",
    mm01("bound: {by: bandwidth}, expect: above 1"): "by cannot be 'bandwidth'; "
    "it is one of memory, compute, formula",
    mm01("jumps: {x: n, every: tiles, of: across}, expect: above 1"): "every is tile, wave or a whole "
    "number above 1, not 'tiles'",
    mm01(
        "jumps: {x: k, every: tile, of: across}, expect: above 1"
    ): "tiles quantize m and n; x: k is neither",
    mm01('share: {of: {intensity: "<10"}}, expect: above 0.5'): "share of what is counted before a run; "
    "name one of kernels, median_s, rest_share, below_ridge_share, tensor_cores, bound_by, "
    "measured_bound_by, as_predicted",
    mm01("share: {of: {k: 1}, per: flop}, expect: above 1"): "share has no key 'per'; it has of",
    f"{RATIO}: {{of: {{k: 1}}, to: {{k: 1}}}}": "ratio compares rows with themselves: of and to are the same",
    f"{RATIO}: {{of: {{k: 1}}, to: {{k: 2}}, pair: closest k}}": "pair is `same`, `nearest k`, "
    "`nearest m=n=k`, `within 10% m=n=k`, `swap m=n` or `x2 k`, not 'closest k'",
    f"{RATIO}: {{pair: swap m}}": "swap is of two columns, as `swap m=n`, not 'swap m'",
    f"{RATIO}: {{of: {{k: 1}}, to: {{k: 2}}, less: {{of: {{k: 1}}, two: {{k: 2}}}}}}": "less has no key "
    "'two' (did you mean to?); it has of, to, pair, per, y, less",
    f"{RATIO}: {{pair: x2 k, less: {{pair: x2 n, less: {{pair: x2 m}}}}}}": "a ratio that is `less` another "
    "is no `less` of a third",
    # what it expects
    mm01(
        "slope: {x: k}, expect: over 1"
    ): "expect is `above X`, `below X`, `between X and Y` or `outside X and Y`, not 'over 1'",
    mm01("slope: {x: k}, expect: between 2 and 1"): "expect: 2 is not below 1",
    # whom it is about
    mm01(f"device: {{kind: gpu}}, {SLOPE}"): "kind cannot be 'gpu'; it is one of cpu, cuda",
    mm01(f'device: {{capability: "8.0"}}, {SLOPE}'): 'capability is the least there must be, as ">=8.0", '
    "not '8.0'",
    mm01(f"device: {{sms: 2}}, {SLOPE}"): "device has no key 'sms'; it has kind, capability",
    # selections
    where("q: 1"): "a claim about gemm has no column 'q'; it has operator, implementation, cache, "
    "threads_asked, intensity, flop, byte, kernels, median_s, rest_share, below_ridge_share, tensor_cores, "
    "bound_by, measured_bound_by, as_predicted, "
    f"{PARAMETERS}",
    where('k: "%x"'): f"'%x' is no condition: {HOW}",
    where('k: "<0.5 rigde"'): f"'<0.5 rigde' is no condition: {HOW}",
    where("k: x3 q"): f"a claim about gemm has no number 'q'; it has {NUMBERS}",
    where('layout: "%8"'): "layout is no number, so '%8' is no condition of it",
    where('k: ["%8", 3]'): "a list holds values; '%8' is a condition, which stands alone",
    where("k: {per_sn: 2}"): "a mapping in a selection is {per_sm: N} or {per_sm: N, plus: P}",
    where("tensor_cores: ran"): "gemm has no tensor_cores 'ran'; it has used, unused, unknown",
    where('implementation: "~("'): "'~(' is no regular expression: missing ), unterminated subpattern at "
    "position 0",
}


@pytest.mark.parametrize(("claim", "says"), MISTAKES.items(), ids=[m[:60] for m in MISTAKES.values()])
def test_every_broken_claim_is_one_sentence_with_its_file_and_line(
    tmp_path: Path, claim: str, says: str
) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(f"{HEAD}  - {{id: MM-02, says: x, {SLOPE}}}\n  - {{{claim}}}\n")
    with pytest.raises(UserError) as refused:
        load(path, kernels.problem, 132, root=tmp_path)
    assert str(refused.value).endswith(f"/x.yaml:8: {says}")


def test_a_claim_stands_once_and_a_misspelt_implementation_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(f"{HEAD}  - {{{mm01(SLOPE)}}}\n  - {{{mm01(SLOPE)}}}\n")
    with pytest.raises(UserError, match=r"x\.yaml:8: claim MM-01 stands here again"):
        load(path, kernels.problem, 132, root=tmp_path)
    path.write_text(f"{HEAD}  - {{{where('implementation: [cublas, cublass]')}}}\n")
    with pytest.raises(
        UserError, match=r"x.yaml:7: gemm has no implementation 'cublass'.*did you mean cublas"
    ):
        load(path, kernels.problem, 132, root=tmp_path)


def test_a_broken_claim_about_an_imported_table_is_told_likewise(tmp_path: Path) -> None:
    good = CLAIMS / "aiconfigurator.yaml"
    assert table_claims(good, kernels.problem).claims
    path = tmp_path / "t.yaml"
    path.write_text(good.read_text().replace("x2 m", "x2 outputs"))
    with pytest.raises(UserError, match=r"t.yaml:\d+: a claim about gemm has no parameter 'outputs'"):
        table_claims(path, kernels.problem)
    path.write_text(good.read_text().replace("title:", "titel:"))
    with pytest.raises(UserError, match=r"t.yaml:\d+: a table's claims has no key 'titel'"):
        table_claims(path, kernels.problem)
