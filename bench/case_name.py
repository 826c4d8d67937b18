"""The name of a case: `case_name` for people, `case_key` for pairing rows.

Every command prints the name and takes it back: `-k NAME`, `--bench-case NAME`, `python -m bench explain NAME
RESULT`. It follows from a case before a run and from its row afterwards alike.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

FIRST = ("m", "n", "k", "c", "h", "w", "window", "window_w", "stride", "stride_w", "rows")
"""Numbers that stand first in a name, in their conventional order; the others follow alphabetically."""
OMITTED_VALUES = ("tight",)
"""Values of parameters that a name leaves out, as it leaves out zero and false."""


def case_name(
    sweep: str, operator: str, implementation: str, parameters: str, cache: str, threads: str | None = None
) -> str:
    """The name of a case: `gemm/square-triton-float16-TN-m4096-n4096-k4096-cold`.

    Unique within a run, and no part of another name of it, so that pytest's `-k` finds this case alone; of
    letters, digits and `/ - _ . + :` only, which `-k` reads as one word. The operator is named where the path
    of the sweep does not name it, one thread where not all are used. `parameters` is JSON, as in a row.
    """
    # Behind the implementation: `my-gemm-triton-...` would hold the name of a case of the sweep `gemm`.
    kind = () if operator in re.split("[/_]", sweep) else (operator,)
    thread = ("one-thread",) if threads == "one" else ()
    problem = problem_name(json.loads(parameters))
    return "-".join(filter(None, (sweep, implementation, *kind, problem, *thread, cache)))


def row_name(row: Any) -> str:
    """The name of the case that a row is of: of a Measurement, or of a row of a DataFrame."""
    return case_name(
        row.sweep, row.operator, row.implementation, row.parameters, row.cache, row.threads_asked
    )


def problem_name(parameters: Mapping[str, Any]) -> str:
    """A problem's part of the name: data type, words, numbers, what is true: `float16-TN-m64-n64-k64`.

    Zero is left out, but where it is a width's (`padding_w`) that differs from the height's (`padding`).
    """
    ordered = sorted(parameters, key=lambda name: (FIRST.index(name) if name in FIRST else len(FIRST), name))
    widths = {f"{name}_w" for name in parameters}
    words, numbers, true = [str(parameters["dtype"])] if "dtype" in parameters else [], [], []
    for name in ordered:
        value = parameters[name]
        if isinstance(value, str):
            words += [value] if name != "dtype" and value not in OMITTED_VALUES else []
        elif value is True:
            true.append(name)
        elif value or name in widths:
            numbers.append(f"{name}{value}")
    return "-".join([*words, *numbers, *true])


def parameter_words(parameters: Mapping[str, Any]) -> list[str]:
    """`NAME=VALUE` of each parameter, as commands take them."""
    texts = {n: str(value).lower() if isinstance(value, bool) else value for n, value in parameters.items()}
    return [f"{name}={text}" for name, text in texts.items()]


def case_key(
    sweep: str, operator: str, implementation: str, parameters: str, cache: str, threads: str | None = None
) -> str:
    """The identity of a case, by which rows of several runs are paired; one thread is named where it is."""
    few = ("one thread",) if threads == "one" else ()
    return "|".join((sweep, operator, implementation, parameters, cache, *few))
