"""Clones of public repositories: the folders that a description names, at the commit that it names."""

from __future__ import annotations

import subprocess
from pathlib import Path

from bench.errors import UserError
from bench.interop.source_file import Source


def clone(source: Source, folder: Path) -> None:
    """Make `folder` such a clone; UserError, with git's own words, if that is not possible.

    A clone that was interrupted is completed: nothing that is there is fetched again.
    """
    if not source.paths:
        raise UserError(f"{folder}: cannot be cloned, since no repository holds the files of {source.name}")
    folder.mkdir(parents=True, exist_ok=True)
    _git(folder, "init", "--quiet")
    _git(folder, "sparse-checkout", "set", *source.paths)
    _git(
        folder, "config", "remote.origin.url", source.repository
    )  # from there git fetches files as it needs them
    _git(folder, "fetch", "--quiet", "--depth=1", "--filter=blob:none", "origin", source.commit)
    _git(folder, "checkout", "--quiet", "--detach", "FETCH_HEAD")


def _git(folder: Path, *words: str) -> None:
    try:
        done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise UserError(f"{folder}: cannot be cloned, since there is no git here") from error
    if done.returncode:
        says = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise UserError(f"{folder}: git {words[0]} failed: {says}")
