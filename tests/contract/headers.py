"""What the C headers of CUDA, cuBLASLt and cuDNN say, as the wheels bring them: prototypes, numbers, layouts."""

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
INCLUDES = (SITE / "nvidia" / "cu13" / "include", SITE / "nvidia" / "cudnn" / "include")

Kind = Literal["pointer", "double", "size_t", "int"]


@cache
def _text(header: str) -> str:
    path = next(folder / header for folder in INCLUDES if (folder / header).exists())
    text = re.sub(r"/\*.*?\*/", " ", path.read_text("utf-8", errors="replace"), flags=re.S)
    return re.sub(r"//[^\n]*", " ", text)


@cache
def prototypes(*headers: str) -> dict[str, tuple[Kind, ...]]:
    """Function -> kinds of its parameters, of all that return a status. An enum is passed as an int.

    A name that the header replaces by a later version's (`#define cuDeviceTotalMem cuDeviceTotalMem_v2`) stands
    under that one, as the library exports it.
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
    opaque = r"\b(cudnn\w+Descriptor_t|cudnnHandle_t|cudaStream_t|CUstream|CUgraph|CUgraphNode|CUfunction|CUkernel)\b"
    if "*" in parameter or "[" in parameter or re.search(opaque, parameter):
        return "pointer"
    first = parameter.replace("const", "").split()[0]
    return "double" if first == "double" else "size_t" if first == "size_t" else "int"


def numbers(header: str, expressions: Sequence[str]) -> dict[str, int]:
    """Expression -> value, as the C compiler has it: enumerators, sizeof, offsetof."""
    lines = "\n".join(f'printf("%lld\\n", (long long)({one}));' for one in expressions)
    program = f"#include <stddef.h>\n#include <stdio.h>\n#include <{header}>\nint main(void) {{ {lines} return 0; }}"
    with tempfile.TemporaryDirectory() as scratch:
        binary = Path(scratch) / "numbers"
        command = ["cc", "-x", "c", "-", "-o", str(binary), *(f"-I{folder}" for folder in INCLUDES)]
        done = subprocess.run(command, input=program, text=True, capture_output=True)
        assert done.returncode == 0, done.stderr
        answer = subprocess.run([binary], check=True, capture_output=True, text=True).stdout
    return dict(zip(expressions, map(int, answer.split()), strict=True))
