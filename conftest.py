"""What pytest reads first in this folder: `pytest bench/ --benchmark` is the plugin bench/pytest_plugin.py.

`pytest-benchmark compare` loads this file outside a pytest run too, so importing it does nothing.
"""

from pathlib import Path

import pytest

pytest_plugins = ["bench.pytest_plugin"]


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Refuse packages of other places that are called as ours are."""
    from bench.pytest_plugin import refuse_strangers

    refuse_strangers(Path(__file__).parent)
