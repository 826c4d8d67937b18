"""What the compiler makes of our kernels, a table for each family of them.

    python -m tests.kernels.compile_table                     every configuration in some form
    python -m tests.kernels.compile_table gemm_tma pooling    of these families
    python -m tests.kernels.compile_table --all               every form of every configuration: hours

A family `softmax` is a module of this folder, `softmax_compiled.py`, which says what its kernels promise. The
table shows compute capability, registers, bytes of shared memory, spills, and instructions. Exit code 1 on a
fault. Needs no GPU; must run without TRITON_INTERPRET. It says what the compiler made, not that it runs, nor
how fast.
"""

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path

from tests.drawing import drawn, is_deep
from tests.kernels.compiled import Built, Family, Form

NAMES = sorted(path.stem.removesuffix("_compiled") for path in Path(__file__).parent.glob("*_compiled.py"))


def named(name: str) -> Family:
    """The family of this name."""
    module = import_module(f"tests.kernels.{name}_compiled")
    family: Family = module.FAMILY
    return family


def few(name: str) -> list[Form]:
    """One form of what the family chose, by the seed of the tests' run; all of it in a deep run."""
    chosen, _, slow = named(name)
    return drawn([form for form in chosen() if is_deep() or not slow(form)], 1, f"compiled {name}")


def main(arguments: Sequence[str]) -> int:
    """Print the tables; the number of faults."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.kernels.compile_table", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("names", nargs="*", metavar="FAMILY", help=f"of {', '.join(NAMES)}; default: all")
    parser.add_argument("--all", action="store_true", help="every form of every configuration")
    given = parser.parse_args(arguments)
    if unknown := set(given.names) - set(NAMES):
        parser.error(f"no family is called {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    families = {name: named(name) for name in given.names or NAMES}
    return sum(show(name, list(of.every() if given.all else of.chosen())) for name, of in families.items())


def show(name: str, forms: Sequence[Form]) -> int:
    """Print a family's table; the number of its faults."""
    width = max((len(str(form)) for form in forms), default=0)
    print(f"{name}\n{'':{width}}  sm   regs   shared  spills  instructions")
    bad = 0
    with ThreadPoolExecutor(2) as pool:
        for form, built in zip(forms, pool.map(_compiled, forms), strict=True):
            wrong = [built] if isinstance(built, str) else form.faults(built)
            bad += len(wrong)
            facts = ""
            if not isinstance(built, str):
                facts = f"{built.registers:4} {built.shared_byte:8} {built.spills:7}  {form.counts(built)}"
            print(f"{form!s:{width}}  {form.capability:<4} {facts}  {'; '.join(wrong)}".rstrip(), flush=True)
    print(f"{len(forms)} compiled, {bad} faults")
    return bad


def _compiled(form: Form) -> Built | str:
    """Why it cannot be compiled is a fault, and the table goes on."""
    try:
        return form.compiled()
    except Exception as error:
        return f"{type(error).__name__}: {str(error).strip().splitlines()[-1][:200]}"


if __name__ == "__main__":
    sys.exit(1 if main(sys.argv[1:]) else 0)
