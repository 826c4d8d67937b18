"""What went wrong, in a line: the cause of an exception, without the advice that compilers print after it."""

from __future__ import annotations

import re
import subprocess

_ADVICE = (
    "Repro command:",  # triton/backends/nvidia/compiler.py, after the output of ptxas
    "ptxas fatal   : Ptx assembly aborted due to errors",  # ptxas, after the errors themselves
    "Set TORCHDYNAMO_VERBOSE=1",  # torch/_dynamo/exc.py
    "Search for `cuda",  # torch's libc10_cuda.so, this and the next four
    "CUDA kernel errors might be asynchronously reported",
    "For debugging consider passing CUDA_LAUNCH_BLOCKING",
    "Compile with `TORCH_USE_CUDA_DSA`",
    "Device-side assertions were explicitly omitted",
)
"""Beginnings of lines of advice, which compilers and torch print after the error."""
NEEDS_GPU = "a Triton kernel needs a GPU"
_WITHOUT_GPU = ("0 active drivers", "(cpu tensor?)")
"""What Triton says to a launch without a GPU, or with tensors of the host."""


def cause(error: BaseException) -> str:
    """The cause of an exception in one line: `TypeName: the last line of its text that says what happened`.

    It is the innermost exception of the chain of causes, as compilers wrap an error several times. (A
    CalledProcessError is not taken: the exception raised from it quotes what the program printed.) The last
    line of the text is taken, since Triton's compiler puts the place in the source first; lines of advice and
    the name of a temporary file are left out. Without a text it is the type's name alone.
    """
    while inner := error.__cause__ or (None if error.__suppress_context__ else error.__context__):
        if isinstance(inner, subprocess.CalledProcessError):
            break
        error = inner
    lines = [line for line in map(str.strip, str(error).splitlines()) if line]
    telling = [line for line in lines if not line.startswith(_ADVICE)] or lines
    if not telling:
        return type(error).__name__
    if any(words in telling[-1] for words in _WITHOUT_GPU):
        return NEEDS_GPU
    return f"{type(error).__name__}: {re.sub(r'^ptxas [^ ]+, ', 'ptxas, ', telling[-1])}"


def first_line(error: BaseException) -> str:
    """The first line of its text, or the name of its type if it has none."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def operator_file(operator: str) -> str:
    """The file of an operator's functions. A reason that begins with it is about the file, not a case."""
    return f"kernels/{operator}/operator.py"


def without_function(operator: str, implementation: str) -> str:
    """Why an implementation that only problem.py knows cannot run."""
    return (
        f"{operator_file(operator)}: OPERATOR.implementations lacks {implementation}, "
        "which problem.py in the same folder declares"
    )
