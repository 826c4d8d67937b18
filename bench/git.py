"""Git, asked by its command: what the commits and files of a folder are."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path


class GitError(Exception):
    """Git is not there, took too long or failed; the message is what git says last, in one line."""


def git(
    folder: Path, *words: str, timeout_s: float | None = None, before: Callable[[], object] | None = None
) -> bytes:
    """What git prints in this folder; `before` runs in the child first. GitError if it fails."""
    command = ["git", *words]
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, timeout=timeout_s, preexec_fn=before, check=True
        )
    except FileNotFoundError as error:
        raise GitError("there is no git here") from error
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace")
        last = said[max(said.rfind("fatal: "), said.rfind("error: "), 0) :]  # with the remedy below it
        raise GitError(" ".join(last.split()) or f"exit code {error.returncode}") from error
    except (OSError, subprocess.SubprocessError) as error:
        raise GitError(str(error)) from error
    return done.stdout
