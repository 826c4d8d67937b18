"""The program `roofbench` of `make setup`: its commands in any folder, and the Tab key by typer's script."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bench.environment import search_path

ROOT = Path(__file__).parents[1]
BASH = """
eval "$(_ROOFBENCH_COMPLETE=source_bash roofbench)"
while read -r -a COMP_WORDS; do
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    _roofbench_completion roofbench
    echo "${COMPREPLY[@]}"
done
"""


def environment(folder: Path) -> dict[str, str]:
    """What a shell has once the environment of `make setup` is active, with this folder before it."""
    (program := folder / "roofbench").write_text(search_path.program(sys.executable))
    program.chmod(0o755)
    paths = {"PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": f"{folder}:{ROOT}"}
    return os.environ | paths


def test_a_shell_completes_commands_without_torch_in_any_folder(tmp_path: Path) -> None:
    if shutil.which("bash") is None:
        pytest.skip("there is no bash here")
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise SystemExit('torch is imported')\n")
    done = subprocess.run(
        ["bash", "-c", BASH],
        cwd=tmp_path,
        env=environment(tmp_path),
        input="roofbench new o\nroofbench acc\n",
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == ["operator", "accept"], done.stderr
