"""The cause of an exception as a row shows it. The texts are those of torch 2.11 and Triton 3.6."""

import subprocess

import pytest

from bench.causes import cause


def chained() -> Exception:
    """As Triton's code generator raises: the same place in ever more of the source, the reason innermost."""
    try:
        try:
            raise AttributeError("'NoneType' object has no attribute 'type'")
        except AttributeError as inner:
            raise ValueError("at 27:17:\n    return a, b, c, d\n           ^") from inner
    except ValueError as middle:
        outer = RuntimeError("at 3:4:\n    described_operands(\n    ^")
        outer.__cause__ = middle
    return outer


def test_the_innermost_cause_is_shown() -> None:
    assert cause(chained()) == "AttributeError: 'NoneType' object has no attribute 'type'"


def test_what_was_being_handled_counts_unless_it_is_suppressed() -> None:
    def raised(suppress: bool) -> Exception:
        try:
            try:
                raise KeyError("m")
            except KeyError:
                if suppress:
                    raise ValueError("there is no m") from None
                raise ValueError("there is no m")  # noqa: B904
        except ValueError as error:
            return error

    assert cause(raised(suppress=False)) == "KeyError: 'm'"
    assert cause(raised(suppress=True)) == "ValueError: there is no m"


TEXTS = {
    "at 27:17:\n    tl.store(x, None)\n    ^\ncannot convert None\n\n": "cannot convert None",
    "\n  one line \n": "one line",
    "CUDA error: an illegal memory access was encountered\n"
    "Search for `cudaErrorIllegalAddress' in https://docs.nvidia.com/ for more information.\n"
    "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below "
    "might be incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1\n"
    "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n": (
        "CUDA error: an illegal memory access was encountered"
    ),
    "CompilationError: at 3:1:\n  x\n  ^\nno such type\n\nSet TORCHDYNAMO_VERBOSE=1 for the internal stack "
    'trace (please do this). For even more developer context, set TORCH_LOGS="+dynamo"\n': "no such type",
    "Repro command: only advice": "Repro command: only advice",
}


@pytest.mark.parametrize("text", TEXTS)
def test_the_last_line_that_says_what_happened_is_shown(text: str) -> None:
    assert cause(RuntimeError(text)) == f"RuntimeError: {TEXTS[text]}"


def test_an_exception_without_a_text_is_named() -> None:
    assert cause(AssertionError()) == "AssertionError"


def test_what_a_program_printed_says_more_than_its_exit_status_and_names_no_temporary_file() -> None:
    text = (
        "PTXAS error: Internal Triton PTX codegen error\n`ptxas` stderr:\n"
        "ptxas /tmp/tmpma308vu7.ptx, line 35; error   : Not a name of any known instruction: 'no'\n"
        "ptxas fatal   : Ptx assembly aborted due to errors\n\nRepro command: ptxas /tmp/tmpma308vu7.ptx\n"
    )
    error = RuntimeError(text)
    error.__context__ = subprocess.CalledProcessError(255, ["ptxas"])
    assert cause(error) == "RuntimeError: ptxas, line 35; error   : Not a name of any known instruction: 'no'"
