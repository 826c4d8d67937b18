"""How the contract suite (tests/contract/) is prepared and started, and that no other command runs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract import __main__ as contract

ROOT = Path(__file__).parents[1]
OLD, NEW = contract.ENVIRONMENTS


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty place for environments."""
    monkeypatch.setattr(contract, "FOLDER", tmp_path / ".contract")
    return tmp_path / ".contract"


def interpreter(environment: contract.Environment, says: str, code: int = 0) -> None:
    """An environment whose Python only says this."""
    environment.executable.parent.mkdir(parents=True)
    environment.executable.write_text(f"#!/bin/sh\necho '{says}'\nexit {code}\n")
    environment.executable.chmod(0o755)


def test_what_cannot_be_made_is_taken_away(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(contract, "ROOT", folder.parent)
    (folder.parent / "pyproject.toml").write_bytes((ROOT / "pyproject.toml").read_bytes())
    (folder.parent / "constraints.txt").write_text("")
    failing = folder.parent / "python"
    failing.write_text('#!/bin/sh\nmkdir -p "$3"\nexit 3\n')
    failing.chmod(0o755)
    monkeypatch.setattr(contract.shutil, "which", lambda name: str(failing))
    assert contract.main([NEW.name]) == 2
    assert "torch-2.13.0: it could not be made: a command ended with exit code 3" in capsys.readouterr().out
    assert not (folder / NEW.name).exists()


@pytest.mark.parametrize(
    ("says", "code", "said"),
    [
        (
            "2.13.0+cpu None 3.7.1",
            0,
            "holds torch 2.13.0+cpu, a build without CUDA; remove .contract/torch-2.13.0",
        ),
        ("2.12.0+cu130 13.0 3.7.1", 0, "holds torch 2.12.0+cu130 and Triton 3.7.1, not 2.13.0 and 3.7.1"),
        ("", 1, "torch and Triton cannot be imported: it says nothing"),
    ],
)
def test_another_build_is_refused_in_a_sentence(
    folder: Path, capsys: pytest.CaptureFixture[str], says: str, code: int, said: str
) -> None:
    interpreter(NEW, says, code)
    assert contract.main([NEW.name]) == 2
    assert said in capsys.readouterr().out


def test_the_suite_is_started_apart_from_ours(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the stub first, nothing of ours that pytest would load, and without what would change a result."""
    interpreter(NEW, "2.13.0+cu130 13.0 3.7.1")
    kept = folder.parent / "seen"
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setattr(contract, "_stub", lambda environment, scratch: scratch)
    versions = '[ "$1" = -c ] && echo "2.13.0+cu130 13.0 3.7.1" && exit'
    NEW.executable.write_text(f'#!/bin/sh\n{versions}\necho "$@" > {kept}\nenv >> {kept}\nexit 5\n')
    assert contract.main([NEW.name]) == 1
    text = kept.read_text()
    assert "-o python_files=contract_*.py" in text and "--confcutdir=tests/contract" in text
    assert "LD_LIBRARY_PATH=" in text and "TRITON_INTERPRET" not in text
