"""How commands end that cannot go on: one sentence for what a person did wrong, a traceback for a bug."""

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

import kernels
from bench.__main__ import app as bench_app
from bench.errors import BUG
from bench.runner.run import Run
from plots.__main__ import app as plots_app
from studies.__main__ import app as studies_app
from tests.bench.test_sweep import MISTAKES, find
from tests.drawing import drawn
from tests.processes import pytested

ROOT = Path(__file__).parents[1]


def shell(words: list[object]) -> Result:
    """What `python -m WORDS` would leave: CliRunner itself hides an exception that nothing caught."""
    module, *rest = map(str, words)
    done = CliRunner().invoke({"bench": bench_app, "plots": plots_app, "studies": studies_app}[module], rest)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


def refused(*words: object) -> str:
    """The sentence with which a command refuses, without `error: `."""
    done = shell([*words])
    assert done.exit_code == 2, (words, done.output)
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1, (words, done.stderr)
    return done.stderr.removeprefix("error: ").strip()


def test_every_broken_sweep_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "problem", find)
    for number, (text, says) in enumerate(drawn(list(MISTAKES.items()), 25, "broken sweeps")):
        path = tmp_path / f"{number}.yaml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        assert refused("bench", "list", "--on", "h100_sxm5", path) == f"{path}:{says}"


MISSING = "nowhere.parquet"
PRODUCT = ("gemm", "m=n=k=64", "dtype=float16", "layout=NN")
BAD_INPUT: list[tuple[list[object], str]] = [
    (["bench", "list", "nowhere.yaml"], "no sweep 'nowhere.yaml'"),
    (["bench", "list", "--bench-device", "tpu"], "--bench-device tpu: give auto, cpu, cuda"),
    (["bench", "list", "--on", "abacus"], "datasheets has no CUDA GPU 'abacus'; it has a10, "),
    (["bench", "predict", "gemm", "m=1"], "predict gemm: give an operator, sizes and a GPU"),
    (["bench", "predict", *PRODUCT, "--on", "b200", "--from", MISSING], f"{MISSING}: no such file"),
    (["bench", "compare", MISSING, MISSING], f"{MISSING}: no such file"),
    (["bench", "import", "csv", "nowhere.csv"], "nowhere.csv: cannot be read: No such file or directory"),
    (["bench", "nightly", "--baseline", "nowhere"], "--baseline nowhere: no such folder"),
    (["studies", "coverage", "--repetitions", "0"], "--repetitions 0: give a whole number"),
    (["studies", "prediction", MISSING], f"{MISSING}: no such file"),
    (["plots", MISSING], f"{MISSING}: no such file"),
    (["plots", "score", MISSING], f"{MISSING}: no such file"),
]


@pytest.mark.parametrize(("words", "says"), BAD_INPUT, ids=[" ".join(map(str, w)) for w, _ in BAD_INPUT])
def test_bad_input_is_one_sentence(
    words: list[object], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert says in refused(*words)
    assert not list(tmp_path.iterdir())


PUBLIC = "results/reference/public"
ALMOST: dict[str, tuple[list[object], str]] = {
    "sweep": (["bench", "list", "gemm/sqare"], "gemm/square"),
    "suite": (["bench", "list", "--suite", "tuor"], "tour"),
    "device": (["bench", "list", "--bench-device", "cud"], "cuda"),
    "datasheet": (["bench", "predict", *PRODUCT, "--on", "h2000"], "h200"),
    "half a datasheet": (["bench", "list", "--on", "h100"], "h100_sxm5 or h100_nvl or h100_pcie"),
    "operator": (["bench", "run", "gem", "n=64"], "gemm"),
    "parameter": (["bench", "run", "softmax", "lenght=64"], "length"),
    "implementation": (["bench", "run", "softmax", "length=64", "--implementation", "tritn"], "triton"),
    "case": (["bench", "explain", "gemm_shapes", PUBLIC], "ceilings/gemm_shapes-cublas-bfloat16-TN-"),
    "fact": (["bench", "compare", PUBLIC, PUBLIC, "--across", "devic"], "device"),
    "table": (["bench", "import", "aiconfigurator", "--table", "colective"], "collective"),
    "result": (["bench", "table", "results/reference/publik"], "public"),
}


@pytest.mark.parametrize("what", ALMOST)
def test_a_refusal_suggests_what_was_meant_before_it_lists_all(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    words, meant = ALMOST[what]
    sentence = refused(*words)
    before, _, rest = sentence.partition(f" (did you mean {meant}")
    assert rest and not any(words in before for words in ("it has", "there is", "one of")), sentence


def broken(*_: object, **__: object) -> None:
    """Fail as a mistake in our arithmetic does: with a ValueError of numpy's."""
    np.zeros(3) + np.zeros(4)


@pytest.mark.parametrize(
    ("words", "place"),
    [
        (["bench", "list"], "bench.sweep.load.load_all"),
        (["bench", "table", MISSING], "bench.judge.read_runs.read"),
        (["bench", "compare", MISSING, MISSING], "bench.judge.read_runs.read"),
        (["studies", "coverage"], "studies.interval_coverage.scores"),
    ],
)
def test_a_bug_shows_as_a_bug(words: list[object], place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, broken)
    done = shell(words)
    assert done.exit_code == 70 and not done.stdout
    assert done.stderr.startswith("Traceback (most recent call last):") and "ValueError" in done.stderr
    assert done.stderr.splitlines()[-1] == BUG


def test_a_bug_in_a_run_shows_as_a_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Run, "__init__", broken)
    code, said = pytested(str(ROOT / "bench"), "--benchmark", "--collect-only")
    assert code == 3 and "Traceback" in said and "ValueError: operands could not be" in said
    assert said.count(BUG) == 1
