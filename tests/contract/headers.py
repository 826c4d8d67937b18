"""Prototypes, constants and structures from the C headers of CUDA, cuBLASLt and cuDNN in the wheels."""

from __future__ import annotations

import re
import subprocess
import sysconfig
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Literal

SITE = Path(sysconfig.get_paths()["purelib"])
INCLUDES = (
    SITE / "nvidia" / "cu13" / "include",
    SITE / "nvidia" / "cudnn" / "include",
    SITE / "triton" / "backends" / "nvidia" / "include",  # has the folder crt/, which the wheels leave out
)

Kind = Literal["pointer", "double", "size_t", "int"]


@cache
def _text(header: str) -> str:
    path = next(folder / header for folder in INCLUDES if (folder / header).exists())
    text = re.sub(r"/\*.*?\*/", " ", path.read_text("utf-8", errors="replace"), flags=re.S)
    return re.sub(r"//[^\n]*", " ", text)


@cache
def prototypes(*headers: str) -> dict[str, tuple[Kind, ...]]:
    """Function -> kinds of its parameters, of all that return a status. An enum is passed as an int.

    Where the header renames it to a later version (`#define cuDeviceTotalMem cuDeviceTotalMem_v2`), the
    function is found under that name, as the library exports it.
    """
    found: dict[str, tuple[Kind, ...]] = {}
    for header in headers:
        text = _text(header)
        renamed = dict(re.findall(r"^\s*#define\s+(cu[A-Z]\w+)\s+(cu[A-Z]\w+_v\d+)\s*$", text, re.M))
        for name, parameters in re.findall(
            r"\b(?:CUresult\s+CUDAAPI|cudnnStatus_t\s+CUDNNWINAPI)\s+(\w+)\s*\(([^;]*)\)\s*;", text
        ):
            kinds = tuple(_kind(one) for one in parameters.split(",") if one.strip() not in ("", "void"))
            found[renamed.get(name, name)] = kinds
    return found


def _kind(parameter: str) -> Kind:
    handles = r"\b(cudnn(\w+Descriptor|Handle)_t|cudaStream_t|CU(stream|graph|graphNode|function|kernel))\b"
    if "*" in parameter or "[" in parameter or re.search(handles, parameter):
        return "pointer"
    first = parameter.replace("const", "").split()[0]
    return "double" if first == "double" else "size_t" if first == "size_t" else "int"


def enumerators(*headers: str) -> dict[str, int]:
    """Enumerator -> value, of those that stand with one: for headers that plain C cannot compile."""
    pairs = (
        pair
        for header in headers
        for pair in re.findall(r"\b(CU\w+)\s*=\s*(0x[0-9a-fA-F]+|\d+)", _text(header))
    )
    return {name: int(value, 0) for name, value in pairs}


def numbers(header: str, expressions: Sequence[str]) -> dict[str, int]:
    """Expression -> value, as the C compiler has it: enumerators, sizeof, offsetof."""
    lines = "\n".join(f'printf("%lld\\n", (long long)({one}));' for one in expressions)
    includes = "".join(f"#include <{name}>\n" for name in ("stddef.h", "stdio.h", header))
    program = f"{includes}int main(void) {{ {lines} return 0; }}"
    with tempfile.TemporaryDirectory() as scratch:
        binary = Path(scratch) / "numbers"
        command = ["cc", "-x", "c", "-", "-o", str(binary), *(f"-I{folder}" for folder in INCLUDES)]
        done = subprocess.run(command, input=program, text=True, capture_output=True)
        assert done.returncode == 0, done.stderr
        answer = subprocess.run([binary], check=True, capture_output=True, text=True).stdout
    return dict(zip(expressions, map(int, answer.split()), strict=True))
