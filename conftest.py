"""Loads the pytest plugin bench/pytest_plugin.py, which is `pytest bench/ --benchmark`.

`pytest-benchmark compare` loads this file outside a pytest run too, so importing it does nothing.
"""

from pathlib import Path

import pytest

pytest_plugins = ["bench.pytest_plugin"]


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Refuse packages from other places that have the names of ours."""
    from bench.pytest_plugin import refuse_strangers

    refuse_strangers(Path(__file__).parent)
