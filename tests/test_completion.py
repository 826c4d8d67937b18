"""The Tab key: what a real shell gets from typer's script for the program `roofbench` of `make setup`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bench.environment import search_path
from bench.sweep.load import SWEEPS
from tests.drawing import drawn

ROOT = Path(__file__).parents[1]
DEFINE = """
eval "$(_ROOFBENCH_COMPLETE=source_SHELL roofbench)"
"""
BASH = (
    DEFINE.replace("SHELL", "bash")
    + """
while read -r -a COMP_WORDS; do
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    _roofbench_completion roofbench
    echo "${COMPREPLY[@]}"
done
"""
)
ZSH = (
    """
compdef() {}
_arguments() { print -r -- "${1//$'\\n'/ }" }
_files() { print }
"""
    + DEFINE.replace("SHELL", "zsh")
    + """
while read -r -A words; do
    CURRENT=$#words
    _roofbench_completion
done
"""
)
QUESTIONS = {
    "list gemm/sq": {"gemm/square"},
    "list --suite t": {"tour"},
    "list --on h1": {"h100_nvl", "h100_pcie", "h100_sxm5"},
    "list --bench-device c": {"cpu", "cuda"},
    "predict so": {"softmax", *(f"softmax/{path.stem}" for path in (SWEEPS / "softmax").glob("*.yaml"))},
    "run so": {"softmax"},
    "run softmax --implementation aten,tr": {"aten,triton"},
    "nightly --bench-suite c": {"core"},
    "new o": {"operator"},
    "explain gemm": set(),
}


def environment(folder: Path) -> dict[str, str]:
    """What a shell has once the environment of `make setup` is active, with this folder before it."""
    (program := folder / "roofbench").write_text(search_path.program(sys.executable))
    program.chmod(0o755)
    paths = {"PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": f"{folder}:{ROOT}"}
    return os.environ | paths


@pytest.mark.parametrize(("shell", "script"), [("bash", BASH), ("zsh", ZSH)])
def test_a_shell_completes_names_without_torch_in_any_folder(tmp_path: Path, shell: str, script: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell} here")
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise SystemExit('torch is imported')\n")
    chosen = dict(drawn(list(QUESTIONS.items()), 3, "questions of a shell"))
    questions = "".join(f"roofbench {words}\n" for words in chosen)

    done = subprocess.run(
        [shell, "-c", script],
        cwd=tmp_path,
        env=environment(tmp_path),
        input=questions,
        capture_output=True,
        text=True,
    )

    lines = done.stdout.split("\n")[:-1]
    # zsh is given `"name":"what it is"`.
    answers = [set(re.findall(r'"([^"]*)"(?::"[^"]*")?', line) or line.split()) for line in lines]
    assert dict(zip(chosen, answers, strict=True)) == chosen, done.stderr


def test_the_program_runs_the_commands_anywhere_under_its_name(tmp_path: Path) -> None:
    words = ["roofbench", "run", "--help"]
    done = subprocess.run(words, cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True)
    assert done.returncode == 0 and "Usage: roofbench run " in done.stdout, done.stderr
