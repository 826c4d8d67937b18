"""On which unit, for which job and with which tags a run was made stands in its rows."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import kernels
from bench.environment.dependencies import ROOT
from bench.errors import UserError
from bench.runner import provenance
from bench.runner.options import tags_of
from bench.runner.run import Run
from bench.store import parquet
from bench.store.schema import JOB_IDS
from bench.sweep.load import load
from tests.bench.several import SWEEP, gpu
from tests.bench.two_versions import committed, git, repository

UNIT = {"host": "node17", "pci_bus": "0000:1b:00.0", "serial": "1650522001234"}
COLUMNS = {**UNIT, "gpu_uuid": "GPU-3"}


@pytest.fixture(autouse=True)
def no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*JOB_IDS, "ROOFBENCH_COMMIT"):
        monkeypatch.delenv(name, raising=False)


def row_of_a_run(folder: Path, **settings: Any) -> dict[str, Any]:
    """The first row of the result file of a run in which nothing could be measured."""
    text = SWEEP.replace("SIZES", "8").replace("cublas", "onednn")
    (folder / "small.yaml").write_text("role: probe\n" + text)
    run = Run(replace(gpu(3), **UNIT), folder / "results", **settings)
    run.open()
    run.elsewhere = load(folder / "small.yaml", kernels.problem, 2, folder).cases
    assert not list(run.walk())
    run.close()
    assert run.path is not None
    return vars(parquet.read_rows(run.path)[0])


def test_a_row_says_where_and_for_what_it_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_RUN_ID", "99")
    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    found = row_of_a_run(tmp_path, tags={"rack": "b12", "cooling": "liquid"})
    assert {name: found[name] for name in COLUMNS} == COLUMNS
    assert found["job_id"] == "SLURM_JOB_ID=4711" and found["role"] == "probe"
    assert json.loads(found["tags"]) == {"cooling": "liquid", "rack": "b12"}


@pytest.mark.parametrize(("again", "rack"), [({}, "b12"), ({"tags": {"rack": "b13"}}, "b13")])
def test_a_run_that_is_gone_on_with_keeps_its_origin(
    tmp_path: Path, again: dict[str, Any], rack: str
) -> None:
    """An earlier part may name its unit otherwise: older files may have hashes."""
    text = SWEEP.replace("SIZES", "[8, 16]").replace("cublas", "onednn")
    (tmp_path / "small.yaml").write_text(text)
    cases = load(tmp_path / "small.yaml", kernels.problem, 2, tmp_path).cases
    results = tmp_path / "results"
    begun = Run(replace(gpu(3), **UNIT | {"host": "hashed"}), results, tags={"rack": "b12"})
    resumed = Run(replace(gpu(3), **UNIT), results, resume=True, **again)
    for run, elsewhere in ((begun, cases[:1]), (resumed, cases)):
        run.open()
        run.elsewhere = elsewhere
        assert not list(run.walk())
        run.interrupted() if run is begun else run.close()
    assert resumed.path is not None
    rows = parquet.read_rows(resumed.path)
    assert [row.host for row in rows] == ["hashed"] * 2 and rows[1].tags == json.dumps({"rack": rack})


def test_tags_are_split_at_the_first_equals_sign() -> None:
    assert tags_of("") == {}
    assert tags_of("rack=b12,note = a=b ,rack=b12") == {"rack": "b12", "note": "a=b"}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("rack", "ROOFBENCH_TAGS: 'rack': give key=value"),
        ("a=b,=x", "ROOFBENCH_TAGS: '=x': give key=value"),
        ("rack=", "ROOFBENCH_TAGS: 'rack=': give key=value"),
        ("my rack=x", "a key is letters, digits and _ . -"),
        ("rack=a,rack=b", "ROOFBENCH_TAGS: 'rack=b': rack is a already; give each key once"),
    ],
)
def test_a_tag_that_cannot_be_kept_is_refused(given: str, says: str) -> None:
    with pytest.raises(UserError) as refused:
        tags_of(given)
    assert says in str(refused.value) and "\n" not in str(refused.value)


def commit_of_a_row(folder: Path) -> str:
    folder.mkdir()
    commit: str = row_of_a_run(folder)["commit"]
    return commit


@pytest.mark.parametrize("new", ["bench/b.py", "kernels/mine/problem.py", "sweeps/mine/rows.yaml"])
def test_a_new_file_that_decides_a_time_marks_the_commit_before_git_tracks_it(
    new: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout = repository(tmp_path / "checkout", monkeypatch)
    monkeypatch.setattr(provenance, "ROOT", checkout)
    (checkout / ".gitignore").write_text("/kernels/tuned/\n")
    commit = committed(checkout)
    for beside in ("kernels/tuned/gpu.json", "figures/a.svg"):
        (checkout / beside).parent.mkdir(exist_ok=True)
        (checkout / beside).touch()
    assert commit_of_a_row(tmp_path / "clean") == commit
    (checkout / new).parent.mkdir(parents=True, exist_ok=True)
    (checkout / new).touch()
    git(checkout, "config status.showUntrackedFiles no")
    assert commit_of_a_row(tmp_path / "new") == f"{commit}+"
    (checkout / "bench" / "a.py").write_text("x = 2\n")
    assert commit_of_a_row(tmp_path / "both") == f"{commit}+"
    assert committed(checkout) == commit_of_a_row(tmp_path / "committed") != commit


@pytest.mark.parametrize("why", ["no repository", "no commit", "another owner", "no git"])
def test_a_commit_that_git_cannot_tell_is_empty(
    why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout = repository(tmp_path / "checkout", monkeypatch)
    monkeypatch.setattr(provenance, "ROOT", checkout)
    if why in ("no repository", "no commit"):
        (checkout / ".git").rename(tmp_path / "elsewhere")
    if why == "no commit":
        git(checkout, "init -q")
    if why == "another owner":  # what git's own tests set to see a checkout of another user
        monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
        with pytest.raises(subprocess.CalledProcessError):
            git(checkout, "describe --always")
    if why == "no git":
        monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    (checkout / "kernels" / "new.py").touch()
    assert commit_of_a_row(tmp_path / "row") == ""
    says = {"another owner": "safe.directory", "no repository": "without .git", "no git": "no git here"}
    reason = Run(gpu(3), tmp_path).no_commit
    assert says.get(why, "fatal: ") in reason and "ROOFBENCH_COMMIT may state it" in reason
    monkeypatch.setenv("ROOFBENCH_COMMIT", "0123456789abcdef+")
    assert commit_of_a_row(tmp_path / "stated") == "0123456789ab+"
    (file,) = (tmp_path / "stated").rglob("*.parquet")
    assert file.stem.endswith("-0123456789ab")
    monkeypatch.setenv("ROOFBENCH_COMMIT", "../main")
    with pytest.raises(UserError, match="give 7 to 40 hexadecimal digits"):
        commit_of_a_row(tmp_path / "refused")


def test_an_archive_names_its_commit_also_inside_another_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout = repository(tmp_path / "checkout", monkeypatch)
    (checkout / "bench" / "runner").mkdir()
    for name in (".gitattributes", "bench/runner/provenance.py"):
        shutil.copy(ROOT / name, checkout / name)
    commit = committed(checkout)
    copy = repository(tmp_path / "another", monkeypatch) / "roofbench"
    copy.mkdir()
    git(checkout, f"archive -o {copy}/packed.tar HEAD bench/runner")
    with tarfile.open(copy / "packed.tar") as files:
        files.extractall(copy, filter="data")
    (line,) = re.findall("^ARCHIVED = .*", (copy / "bench/runner/provenance.py").read_text(), re.MULTILINE)
    monkeypatch.setattr(provenance, "ARCHIVED", ast.literal_eval(line.removeprefix("ARCHIVED = ")))
    monkeypatch.setattr(provenance, "ROOT", copy)
    assert commit_of_a_row(tmp_path / "row") == commit
