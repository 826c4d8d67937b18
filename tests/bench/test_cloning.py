"""Sources are cloned at the described commits, of each only its files, and fetched once."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from bench.errors import UserError
from bench.interop.cloning import clone
from bench.interop.source_file import described
from tests.bench.public_tables import imports

MADE = Path(__file__).with_name("made_source.yaml").read_text()


def in_repository(origin: Path, *words: str) -> str:
    """What git prints there."""
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words]
    return subprocess.run(command, cwd=origin, check=True, capture_output=True, text=True).stdout.strip()


def repository(origin: Path, **files: str) -> str:
    """A repository of these files below `data`, which lets itself be cloned as GitHub does; its commit."""
    for name, content in files.items():
        (origin / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        (origin / "data" / name).write_text(content)
    in_repository(origin, "init", "--quiet")
    for setting in ("uploadpack.allowFilter", "uploadpack.allowAnySHA1InWant"):
        in_repository(origin, "config", setting, "true")
    in_repository(origin, "add", ".")
    in_repository(origin, "commit", "--quiet", "-m", "first")
    return in_repository(origin, "rev-parse", "HEAD")


def test_a_source_that_could_not_be_cloned_is_fetched_the_next_time_and_then_never_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin, clones, results = tmp_path / "origin", tmp_path / "clones", tmp_path / "results"
    line = "op,B,H,Latency\nrelu,100000,2048,1.5\n"  # 1.6 GB in 1.5 ms
    (tmp_path / "made.yaml").write_text(MADE)
    changes = {"name": "made", "commit": repository(origin, **{"vector/a100.csv": line})}
    source = described("made", tmp_path).model_copy(update=changes)
    monkeypatch.setattr("bench.cli.imports.names", lambda: ["made"])

    def said(place: Path) -> tuple[int, str, str]:
        there = source.model_copy(update={"repository": place.as_uri()})
        monkeypatch.setattr("bench.cli.imports.described", lambda name: there)
        return imports("all", clones, "--clone", "--bench-results", results)

    code, _, err = said(tmp_path / "nowhere")
    assert code == 1 and err.startswith("made: left out: ") and "git fetch failed" in err
    code, told, err = said(origin)
    assert (code, err) == (0, "") and "made: 1 row in 1 file\n" in told
    code, _, err = said(tmp_path / "nowhere")
    assert code == 0 and "already imported" in err and "git" not in err


def test_a_clone_has_the_described_folders_at_the_described_commits(tmp_path: Path) -> None:
    origin, clones = tmp_path / "origin", tmp_path / "clones"
    (origin / "code").mkdir(parents=True)
    (origin / "code/left.py").write_text("first")
    pinned = repository(origin, **{"kept.csv": "first"})
    (origin / "data/kept.csv").write_text("second")
    in_repository(origin, "commit", "--quiet", "-am", "second")
    later = in_repository(origin, "rev-parse", "HEAD")
    (tmp_path / "made.yaml").write_text(MADE)
    changes = {"repository": origin.as_uri(), "commit": pinned, "others": (later,)}
    source = described("made", tmp_path).model_copy(update=changes)
    clone(source, clones / "made")
    clone(source, clones / "made")
    for place, content in (("made", "first"), (f"made/commit-{later[:7]}", "second")):
        assert (clones / place / "data/kept.csv").read_text() == content
        assert not (clones / place / "code").exists()
    elsewhere = source.model_copy(update={"repository": (tmp_path / "nowhere").as_uri()})
    with pytest.raises(UserError, match="git fetch failed"):
        clone(elsewhere, clones / "other")
