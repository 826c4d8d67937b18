"""Puts this checkout at the end of the search path of the Python that runs this.

    .venv/bin/python -m bench.environment.search_path

`make setup` does, for its own environment: `.venv/bin/python -m bench` then works from any folder. Installing
the project would do more: its `kernels` would overwrite Hugging Face's package of that name. At the end of
the path it hides nothing.
"""

import sysconfig
from pathlib import Path

if __name__ == "__main__":
    checkout = Path(__file__).parents[2]
    Path(sysconfig.get_path("purelib"), "roofbench.pth").write_text(f"{checkout}\n")
