"""The sweeps of this checkout, the schema that editors read, and what becomes of a file changed at random."""

import json
import random
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
import yaml

import kernels
from bench import sweep, sweep_blocks
from bench.sweep import SWEEPS, Case, SweepError
from bench.sweep_schema import schema, schema_text

OURS = sorted(SWEEPS.rglob("*.yaml"))
PROBLEMS = [kernels.problem(name) for name in kernels.names()]

HEAD = "title: A sweep\nsource: {document: A guide}\noperator: gemm\n"


def block(rest: str) -> str:
    return f"{HEAD}cases:\n  - {{m: 64, n: 64, dtype: float32, {rest}}}\n"


def head(rest: str) -> str:
    return f"{HEAD}{rest}\ncases:\n  - {{m: 64, n: 64, k: 1, dtype: float32}}\n"


def test_our_sweeps_load_with_unique_cases() -> None:
    loaded = sweep.load_all(SWEEPS, kernels.problem, sm_count=132)
    cases: list[Case] = [case for one in loaded for case in one.cases]
    assert [one.name for one in loaded][:3] == ["ceilings/launch", "ceilings/stream", "ceilings/gemm"]
    assert len({c.id for c in cases}) == len({c.key for c in cases}) == len(cases)
    assert not [c.id for c in cases if set(c.id) & set("[]| ")]


def test_our_sweeps_suffice_for_a_small_cpu() -> None:
    """A run on a CPU within two minutes should have over a hundred rows to show."""
    flop_per_s = {"float32": 390e9, "float64": 190e9, "bfloat16": 1500e9}
    cases = [c for one in sweep.load_all(SWEEPS, kernels.problem, sm_count=2) for c in one.cases]
    cheap = [
        c
        for c in cases
        if c.implementation == "onednn"
        and c.problem.flop < 0.1 * flop_per_s.get(c.problem.dtype, 0)
        and c.problem.byte < 0.1 * 27e9
    ]
    assert len(cheap) > 150


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.relative_to(SWEEPS).as_posix())
def test_our_sweeps_fit_the_schema_they_name(path: Path) -> None:
    comment = path.read_text().splitlines()[0]
    assert comment == "# yaml-language-server: $schema=../schema.json"
    named = json.loads((path.parent / "../schema.json").read_text())
    jsonschema.validate(yaml.safe_load(path.read_text()), named)


def test_the_schema_is_current() -> None:
    assert (SWEEPS / "schema.json").read_text() == schema_text(PROBLEMS), "run: python -m bench schema"


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        (block("k: 1"), block("k: 0")),
        (block("k: [1, {from: 2, to: 3}]"), block("k: [1, {from: 2, too: 3}]")),
        (block("k: {per_sm: 2}"), block("layout: {per_sm: 2}, k: 1")),
        (block("k: [1]"), block("k: []")),
        (block("k: 1"), block("o: 1, k: 1")),
        (block("k: 1"), block("layout: NN")),
        (block("k: 1").replace("m: 64, n: 64", "m=n: 64"), block("k: 1").replace("m: 64, n: 64", "m=o: 64")),
        (block("k: 1").replace("m: 64, n: 64", "n=m: 64"), block("k: 1").replace("m: 64, n: 64", "m=n: NN")),
        (head("implementations: onednn"), head("implementations: three")),
        (head("cache: [cold, warm]"), head("cache: []")),
        (head("plot: [{x: k, lines: m}]"), head("plot: [{x: k, lines: q}]")),
        (head("plot: {x: k}"), head("plot: {x: q}")),
        (head("claims: [{id: MM-01, says: x, bar: 1}]"), head("claims: [{id: MM-1, says: x}]")),
        (head("cache: cold"), head("cache: cold").replace("gemm", "gmem")),
        (head("cache: cold"), head("titel: x")),
    ],
)
def test_the_schema_tells_good_from_bad(tmp_path: Path, good: str, bad: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(good)
    sweep.load(path, kernels.problem, 132)
    jsonschema.validate(yaml.safe_load(good), schema(PROBLEMS))
    path.write_text(bad)
    with pytest.raises(SweepError):
        sweep.load(path, kernels.problem, 132)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(yaml.safe_load(bad), schema(PROBLEMS))


def test_nothing_but_a_sweep_error_escapes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Valid files with characters and lines changed at random: each loads or is refused in one line."""
    monkeypatch.setattr(sweep, "MAX_CASES", 1_000)
    monkeypatch.setattr(sweep_blocks, "MAX_CASES", 1_000)
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    good = [path.read_text() for path in sorted(SWEEPS.rglob("*.yaml"))]
    pieces = [
        *"[]{}:,-=&*!|>'\"%@`#~?<\t\n 09.eE+\0\x85\ud7ff\u2028",
        "no",
        "null",
        "1e9",
        ": ",
        "- ",
        "per_sm",
        ".inf",
    ]
    loaded = refused = 0
    for _ in range(2_000):
        text = draw.choice(good)
        for _ in range(draw.choice((1, 1, 1, 2, 5))):
            at = draw.randrange(len(text) + 1)
            lines = text.splitlines(keepends=True) or [""]
            line = draw.randrange(len(lines))
            text = draw.choice(
                [
                    text[:at] + draw.choice(pieces) + text[at:],
                    text[:at] + text[at + draw.randrange(1, 8) :],
                    text[:at] + draw.choice(pieces) + text[at + 1 :],
                    text[:at],
                    "".join(lines[:line] + lines[line + 1 :]),
                    "".join([*lines[:line], draw.choice(lines), *lines[line:]]),
                ]
            )
        path = tmp_path / "x.yaml"
        path.write_bytes(text.encode())
        try:
            sweep.load(path, kernels.problem, 132, root=tmp_path)
            loaded += 1
        except SweepError as error:
            assert str(error).startswith(f"{tmp_path.name}/x.yaml:") and len(str(error).splitlines()) == 1, (
                text
            )
            refused += 1
    assert loaded > 100 and refused > 500


def test_five_thousand_cases_have_names_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(head("implementations: [cublas, onednn]").replace("k: 1,", "k: {from: 1, to: 2500},"))
    loaded = sweep.load(path, kernels.problem, 132)
    assert len({case.id for case in loaded.cases}) == 5_000


def test_reading_sweeps_needs_neither_torch_nor_pyarrow() -> None:
    code = "import sys, bench.sweep, bench.sweep_schema; print({'torch', 'pyarrow'} & set(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=SWEEPS.parent)
    assert ran.stdout == "set()\n", ran.stderr
