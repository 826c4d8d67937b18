"""The study of the model without each of its parts: every part is still where the study takes it out."""

from __future__ import annotations

import pytest

from studies.predicting_without import WITHOUT, changed


@pytest.mark.parametrize("name", WITHOUT)
def test_a_part_can_be_taken_out(name: str) -> None:
    assert changed(WITHOUT[name]).predict
