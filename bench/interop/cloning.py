"""The files of a source: a clone of its folders at the described commit, or a package."""

from __future__ import annotations

import importlib.metadata
import os
from functools import partial
from pathlib import Path

from bench.errors import UserError
from bench.git import GitError, git
from bench.interop.source_file import NothingRead, Source
from bench.worker.lifeline import die_with


def clone(source: Source, folder: Path) -> None:
    """Make `folder` such a clone; NothingRead, with git's own words, if git fails.

    A clone that was interrupted is completed: nothing that is there is fetched again. Each of the source's
    other commits is a clone of its own in this one.
    """
    if not source.paths:
        raise UserError(f"{folder}: cannot be cloned, since no repository holds the files of {source.name}")
    places = {source.commit: folder} | {commit: folder / f"commit-{commit[:7]}" for commit in source.others}
    for commit, place in places.items():
        if _is_at(commit, place):
            continue
        place.mkdir(parents=True, exist_ok=True)
        _git(place, "init", "--quiet")
        _git(place, "sparse-checkout", "set", *source.paths)
        _git(place, "config", "remote.origin.url", source.repository)  # from there git fetches files later
        _git(place, "fetch", "--quiet", "--depth=1", "--filter=blob:none", "origin", commit)
        _git(place, "checkout", "--quiet", "--detach", "FETCH_HEAD")


def installed(source: Source) -> tuple[Source, Path]:
    """The source at the version of the installed package, and that package's folder.

    Its path is looked up; it is never imported. UserError, with the command to install it, if it is not here.
    """
    try:
        package = importlib.metadata.distribution(source.installed)
    except importlib.metadata.PackageNotFoundError as error:
        raise UserError(
            f"the package {source.installed}, which holds these timings, is not installed: "
            f"pip install -c constraints.txt {source.installed}"
        ) from error
    folder = Path(str(package.locate_file(source.installed.replace("-", "_"))))
    return source.model_copy(update={"commit": package.version}), folder


def _is_at(commit: str, folder: Path) -> bool:
    """Whether it has been checked out there, which git writes down last."""
    try:
        return git(folder, "rev-parse", "HEAD").decode().strip() == commit
    except GitError:
        return False


def _git(folder: Path, *words: str) -> None:
    try:
        git(folder, *words, before=partial(die_with, os.getpid()))
    except GitError as error:
        raise NothingRead(f"{folder}: git {words[0]} failed: {error}") from error
