"""What commands print in a terminal and in a pipe: widths, and the line that changes."""

from __future__ import annotations

import atexit
import io
import sys
from collections.abc import Iterator

import pytest

from bench.cli.application import run_process
from bench.cli.run_lines import progress_line
from bench.cli.table import table_lines
from bench.cli.terminal import Live, stages, wrapped
from tests.bench.rows import row


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Standard output is a terminal of 80 columns."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    yield


@pytest.mark.usefixtures("terminal")
def test_lines_break_between_words_and_never_in_a_path() -> None:
    assert wrapped("") == [""] and wrapped("x" * 200) == ["x" * 200]
    path = "/a/long-path/" * 7
    assert wrapped(f"  rows: {path} there") == ["  rows:", f"    {path}", "    there"]
    assert [len(part) for part in wrapped("ab " * 30, most=40)] == [38, 40, 13]
    markdown = "| " + "word " * 40 + "|"
    assert wrapped(markdown) == [markdown], "Markdown is to be pasted"


@pytest.mark.usefixtures("terminal")
def test_a_table_too_wide_for_the_terminal_is_shown_row_by_row() -> None:
    rows = [("gemm", "1 s", "[brackets] :ab: " + "why " * 20, ""), ("", "2 s", "", "x")]
    lines = table_lines(("case", ">median", "why", "more"), rows)
    assert lines[0] == "gemm" and lines[1].startswith("  median 1 s; why [brackets] :ab: why")
    assert lines[-1] == "  median 2 s; more x" and max(map(len, lines)) <= 80
    assert "case" in "".join(table_lines(("case", ">median"), [("gemm", "1 s")]))
    assert table_lines(("case",), []) == []
    assert "why" not in "".join(table_lines(("case", "why"), [("gemm", "")])), "a column of nothing"


@pytest.mark.usefixtures("terminal")
def test_progress_is_one_line_that_fits_with_the_time_left() -> None:
    text: list[str] = []
    live = Live(text.append, live=True)
    timed = row(status="ok", median_s=1.234e-5, low_s=1.2e-5, high_s=1.3e-5)
    for number in (1, 2):
        live.progress(progress_line(number, 20, timed, 65.0))
    live.line("done")
    first, second, *end = text
    assert first.startswith("\r\x1b[K[ 1/20] ") and second.startswith("\r\x1b[K[ 2/20] ")
    assert "1 min 05 s left" in first and len(first) <= len("\r\x1b[K") + 80 and end == ["\r\x1b[Kdone\n"]


def test_stages_are_shown_on_a_terminal_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    for live in (False, True):
        monkeypatch.setattr("sys.stderr.isatty", lambda live=live: live)
        with stages() as say:
            say("reading")
        out, err = capsys.readouterr()
        assert not out and ("reading" in err) == bool(err) == live


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252"])
def test_a_letter_that_the_output_cannot_have_loses_no_run(
    encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding=encoding))
    monkeypatch.setattr(atexit, "register", lambda leave: None)
    run_process(lambda: print("… ─"))
    sys.stdout.flush()
    assert written.getvalue().decode(encoding) == {"latin-1": "? ?", "cp1252": "… ?"}[encoding] + "\n"
