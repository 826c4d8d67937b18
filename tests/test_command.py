"""The commands a person types, as that person meets them: one line, an exit code, nothing lost."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bench.__main__ import app
from bench.device.datasheet import find_datasheet
from bench.judge.read_runs import load
from bench.store.journal import recover
from bench.store.parquet import read_frame
from bench.worker.__main__ import make_bench, respond
from plots.figures.every_figure import pages
from tests.bench import several
from tests.drawing import drawn
from tests.processes import QUIETLY, pytested, python

ROOT = Path(__file__).parents[1]

HEAD = "title: t\nsource: {document: d, range: ours}\noperator: gemm\nimplementations: onednn\n"
SMALL = HEAD + "cases:\n  - {m=n=k: [8, 16], dtype: [float32, float64]}\nplot: {x: m}\n"


def bench(*words: str) -> tuple[int, str]:
    """Exit code and output of `pytest bench/` with these words."""
    return pytested(str(ROOT / "bench"), *words)


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    return path


BAD_SWEEPS = [
    (HEAD + "cases:\n  - {m=n=k: 0, dtype: float32}\n", ":6: "),
    (HEAD.replace("gemm", "gem") + "cases:\n  - {m=n=k: 8, dtype: float32}\n", ":3: "),
    (HEAD + "cases:\n  - {m=n: {from: 1, to: 100000}, k: {from: 1, to: 10000}, dtype: float32}\n", ":6: "),
    ("a: [", "this is not YAML"),
]
REFUSALS = [
    (["--bench-sweep", "nonsense"], "sweeps/ has no sweep 'nonsense'; `python -m bench list` shows"),
    (["--bench-device", "cuda:7"], "--bench-device cuda:7:"),
    (["--bench-device", "tpu"], "--bench-device tpu: give auto, cpu, cuda or cuda:N"),
    (["--bench-budget", "soon"], "--bench-budget soon: give seconds, more than 0, or inf"),
    (["--bench-budget", "0"], "--bench-budget 0: give seconds"),
    (["--bench-results", "/proc/nowhere"], "results cannot be written here"),
    (["-p", "no:benchmark"], "--benchmark needs the plugin pytest-benchmark"),
]


@pytest.mark.parametrize(("text", "says"), drawn(BAD_SWEEPS, 2, "bad sweeps"))
@pytest.mark.parametrize("by", ["pytest", "list"])
def test_a_bad_sweep_is_one_line_and_exit_code_2(tmp_path: Path, text: str, says: str, by: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    if by == "pytest":
        code, output = bench("--benchmark", "--bench-sweep", str(path))
    else:
        listed = CliRunner().invoke(app, ["list", str(path)])
        code, output = listed.exit_code, listed.output
    assert code == 2
    said = [line for line in output.splitlines() if line.strip()]
    assert len([line for line in said if str(path) in line]) == 1 and len(said) <= 2, said
    assert says in "\n".join(said) and "Traceback" not in output


@pytest.mark.parametrize(("words", "says"), drawn(REFUSALS, 4, "refusals"))
def test_what_cannot_work_is_refused_in_one_sentence(words: list[str], says: str) -> None:
    code, said = bench("--benchmark", *words)
    assert code == 2 and says in said and "Traceback" not in said


OPTIONS = [["--bench-budget", "60"], ["--bench-suite", "core"], ["--bench-resume"]]


@pytest.mark.parametrize("words", OPTIONS)
def test_options_of_measuring_are_refused_where_nothing_is_measured(words: list[str]) -> None:
    code, said = bench(*words, "-k", "nothing")
    assert code == 2 and f"{words[0]} is for measuring: give --benchmark with it" in said


def test_a_sweep_of_which_nothing_can_run_here_is_refused_before_anything_is_measured(
    tmp_path: Path, sweep: Path
) -> None:
    sweep.write_text(SMALL.replace("implementations: onednn", "implementations: cublas"))
    words = ("--bench-device", "cpu", "--bench-sweep", str(sweep), "--bench-results", str(tmp_path / "r"))
    code, said = bench("--benchmark", *words)
    assert code == 2 and "nothing that is asked for can run on" in said
    assert "cublas runs on cuda, not on cpu (4 of 4 cases)" in said and "ceilings/" not in said
    assert not list(tmp_path.rglob("*.parquet"))


def test_a_run_in_which_nothing_got_a_time_says_so_by_its_exit_code(stand_in: Path, sweep: Path) -> None:
    code, text = measured(stand_in, sweep, "--bench-budget", "0.001")
    assert code == 3 and "the budget of 0.001 s was over before any case was timed: starting" in text


def test_a_checkout_may_be_reached_through_a_symbolic_link(tmp_path: Path, sweep: Path) -> None:
    link = tmp_path / "checkout"
    link.symlink_to(ROOT)
    words = ["-m", "pytest", str(link / "bench"), "--benchmark", "--co", "-q", "--bench-device", "cpu"]
    done = python(*words, "--bench-sweep", str(sweep), *QUIETLY, cwd=tmp_path, PYTHONPATH="")
    assert done.returncode == 0 and done.stdout.count("test_measure[small-") == 4, done.stdout + done.stderr


def test_there_may_be_nothing_to_resume(stand_in: Path, sweep: Path) -> None:
    code, text = measured(stand_in, sweep, "--bench-resume")
    assert code == 0 and "nothing to resume: no unfinished run in" in text


def test_the_end_of_a_run_is_one_screen_and_tables_are_for_who_asks(stand_in: Path, sweep: Path) -> None:
    sweep.write_text(SMALL.replace("plot: {x: m}", "plot: {x: m, y: rate}"))
    code, text = measured(stand_in, sweep)
    end = text.partition("= roofbench =")[2].splitlines()[1:]
    assert code == 0 and len(end) <= 25
    sentences = end[: end.index("", 2)]
    assert all(len(line) <= 100 for line in sentences), sentences
    assert "4 of 4 cases have a time, in " in text and end[0] == "Fit for use: none of 4 times is suspect."
    assert "IQR" not in text and text.count("next: python -m ") == 1
    assert "Name (time in" not in text
    _, asked = measured(stand_in, sweep, "--benchmark-columns=median", "-v")
    assert "Name (time in" in asked
    (path, *_) = (stand_in / "results").rglob("*.parquet")
    table = CliRunner().invoke(app, ["table", str(path)])
    assert table.exit_code == 0 and table.output.count("-onednn-") == 4
    # The plot of a sweep that lies anywhere counts: without it the figure would be of durations.
    (run,) = load([path], find_datasheet)
    figures = {stem for stem, _ in pages(run)}
    assert {stem for stem in figures if stem.startswith("small-")} == {"small-rate"}


def test_a_worker_that_does_not_start_is_one_sentence(sweep: Path, stand_in: Path) -> None:
    (stand_in / "bench" / "worker" / "__main__.py").write_text("import nonesuch\n")
    code, said = measured(stand_in, sweep)
    assert code == 2, said
    assert "cpu cannot be measured: the worker ended with exit code 1" in said and "Traceback" not in said


@pytest.mark.parametrize("name", drawn(["kernels", "bench"], 1, "packages of ours"))
def test_a_package_of_another_place_is_refused(tmp_path: Path, name: str) -> None:
    """Hugging Face has a package called kernels; a second checkout has all of ours."""
    ours = f"__path__ = [{str(ROOT / name)!r}]\n"
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text(
        ours + (ROOT / name / "__init__.py").read_text().split('"""', 2)[2]
    )
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import {name}; import pytest;"
    code += "sys.exit(pytest.main(['bench', '--benchmark', '-p', 'no:cacheprovider']))"
    done = python("-c", code)
    text = done.stdout + done.stderr
    assert done.returncode == 2 and "Traceback" not in text, text
    assert f"`import {name}` finds {tmp_path / name}, not {ROOT / name} of this checkout" in text


def test_a_run_ends_with_table_results_and_pytest_benchmarks_own_numbers(
    sweep: Path, stand_in: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = stand_in / "bench" / "worker" / "__main__.py"
    worker.write_text(worker.read_text().replace("1e-3", "1e-4 * m"))  # each case has a time of its own
    report = stand_in / "report.json"
    monkeypatch.setenv("ROOFBENCH_TAGS", "rack=b12")
    code, text = measured(stand_in, sweep, "-k", "small and float32", f"--benchmark-json={report}")
    assert code == 0, text
    assert "2 of 2 cases have a time" in text and "next: python -m bench explain small-" in text
    (path,) = (stand_in / "results").rglob("*.parquet")
    frame = read_frame([path])
    frame = frame[frame["role"] == "measurement"]
    assert set(frame["tags"]) == {'{"rack": "b12"}'} and set(frame["host"]) == {socket.gethostname()}
    saved = json.loads(report.read_text())
    assert saved["machine_info"]["device"]["slug"] == frame["device"].iloc[0]
    assert len(saved["benchmarks"]) == 2
    for one in saved["benchmarks"]:
        (row,) = (r for _, r in frame.iterrows() if abs(r.median_s / one["stats"]["median"] - 1) < 1e-9)
        assert one["stats"]["rounds"] == len(row.samples_s) and one["stats"]["iterations"] == row.launches
        assert isinstance(one["params"]["case"], str)


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose workers are processes without torch: see tests/bench/several.py."""
    return several.stand_in(tmp_path, monkeypatch)


def measuring(folder: Path, sweep: Path, *words: str) -> list[str]:
    """The words after `pytest` of a run over a sweep on the CPU, with results in this folder."""
    given = [str(ROOT / "bench"), "-k", "small", "--benchmark", "--bench-device", "cpu"]
    given += ["--bench-sweep", str(sweep), "--bench-budget", "inf"]
    return [*given, "--bench-results", str(folder / "results"), *words]


def measured(folder: Path, sweep: Path, *words: str) -> tuple[int, str]:
    """Exit code of such a run, and what it printed."""
    return pytested(*measuring(folder, sweep, *words))


def started(folder: Path, sweep: Path, *words: str) -> subprocess.Popen[str]:
    """Such a run in a process of its own, whose worker is the stand-in of this folder."""
    code = (
        "import bench.runner.worker_process as p, sys, pytest;"
        f"p.ROOT = p.Path({str(folder)!r});"
        f"sys.exit(pytest.main({[*measuring(folder, sweep, *words), *QUIETLY]!r}))"
    )
    return subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def test_pytest_benchmark_compares_device_times(sweep: Path, stand_in: Path) -> None:
    storage = f"--benchmark-storage=file://{stand_in}/saved"
    code, text = measured(stand_in, sweep, storage, "--benchmark-save=before")
    assert code == 0, text
    code, text = measured(stand_in, sweep, storage, "--benchmark-compare=0001")
    assert code == 0, text
    assert text.count("(NOW)") == text.count("(0001_before)") == 4


def test_a_wrong_result_is_a_failure(sweep: Path, stand_in: Path) -> None:
    (stand_in / "fail-16").touch()
    code, text = measured(stand_in, sweep)
    assert code == 1, text
    assert "2 failed, 2 passed" in text and "wrong: made so" in text


def test_a_result_file_that_cannot_be_written_is_exit_code_2(sweep: Path, stand_in: Path) -> None:
    """As the worker ends, the folder of the results becomes a file."""
    (stand_in / "spoil-results").touch()
    code, text = measured(stand_in, sweep)
    assert code == 2, text
    assert "cannot be written" in text and "the rows are safe in" in text and "4 passed" in text


def test_an_operator_that_cannot_be_imported_is_one_failure(
    stand_in: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other operators are tested all the same. The stand-in has no examples but of gemm."""
    code, said = bench("-q", "-k", "gemm-onednn or launch", "--bench-device", "cpu")
    assert code == 1 and "1 failed, 3 passed" in said and "error: launch: no compiler" in said
    monkeypatch.setitem(sys.modules, "kernels.launch.operator", None)
    answer = respond(make_bench("cpu", 1 << 20, 1), {"do": "examples", "operator": "launch"})
    assert answer["status"] == "error" and "import of kernels.launch.operator halted" in answer["reason"]


def test_ctrl_c_keeps_the_rows_and_the_next_run_goes_on(sweep: Path, stand_in: Path) -> None:
    """Interrupted in a later visit, which would never end; resumed, every case is there once."""
    worker = stand_in / "bench" / "worker" / "__main__.py"
    quick = worker.read_text()
    worker.write_text(quick.replace('"measure_s": 1e-3', '"measure_s": 1e3'))
    for size in (8, 16):
        os.mkfifo(stand_in / f"here--{size}")
    (stand_in / "hang--16").touch()
    with started(stand_in, sweep) as running:
        (stand_in / "here--16").read_bytes()
        running.send_signal(signal.SIGINT)
        assert running.stdout is not None
        text = running.stdout.read()
    assert running.returncode == 2, text
    assert "these rows are safe in" in text and "--bench-resume" in text
    (journal,) = (stand_in / "results").rglob("*.journal")
    kept = recover(journal).rows
    assert 1 <= len(kept) < 4, text
    (stand_in / "hang--16").unlink()
    worker.write_text(quick)
    code, text = measured(stand_in, sweep, "--bench-resume")
    assert code == 0 and f"going on with an unfinished run: {len(kept)} rows" in text
    (path,) = (stand_in / "results").rglob("*.parquet")
    frame = read_frame([path])
    assert len(frame) == 4 and frame["parameters"].is_unique
    assert not list((stand_in / "results").rglob("*.journal"))


def test_from_any_folder_our_own_packages_are_imported_whatever_lies_there(tmp_path: Path) -> None:
    """Hugging Face's `kernels` in the folder, as in site-packages, which precede a path of a .pth file."""
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "__init__.py").write_text("raise SystemExit('not ours')\n")
    done = python("-m", "bench", "list", "softmax", cwd=tmp_path)
    assert done.returncode == 0 and "softmax/rows" in done.stdout, done.stderr


def test_list_names_every_sweep_and_says_what_runs_here() -> None:
    done = CliRunner().invoke(app, ["list", "--bench-device", "cpu"])
    assert done.exit_code == 0
    for path in (ROOT / "sweeps").glob("*/**/*.yaml"):
        named = str(path.relative_to(ROOT / "sweeps").with_suffix("")) in done.stdout
        assert named == ("on_request" not in path.parts)
    assert re.match(r"[0-9,]+ of [0-9,]+ cases run here", done.stdout.splitlines()[-1])
    assert re.search(r"\nfma/\S+ +0 of +[0-9]+ cases run here: \S+ runs on cuda, not on cpu   ", done.stdout)


BENCH = str(ROOT / "bench")
SLIPS: list[tuple[list[str], int, str]] = [
    ([BENCH, "--bench-budgte", "30"], 4, "'--bench-budgte' (did you mean --bench-budget?); it has"),
    (["--benchmark", "--bench-sweep", "gemm/square"], 2, "give `pytest bench/ --benchmark`"),
    (["tests/test_promises.py", "--benchmark"], 2, "give `pytest bench/ --benchmark`"),
]


@pytest.mark.parametrize(("words", "code", "says"), SLIPS)
def test_a_slip_on_pytest_s_command_line_is_one_sentence(
    words: list[str], code: int, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    exit_code, output = pytested(*words)
    said = [line for line in output.splitlines() if line.strip()]
    assert exit_code == code and len(said) == 1 and says in said[0], said
