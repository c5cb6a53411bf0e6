"""Where several ends hold, the first of 130, 5, 4, 1, 3 wins."""

from __future__ import annotations

from typing import Any

import pytest

from kbench.outcome import Outcome


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"passed": 1, "failed": 1, "errors": 1, "interrupted": True, "internal_error": True}, 130),
        ({"passed": 1, "failed": 1, "errors": 1, "internal_error": True}, 5),
        ({"passed": 1, "failed": 1, "errors": 1, "skipped": 1}, 4),
        ({"passed": 1, "failed": 1, "skipped": 1}, 1),
        ({"skipped": 1}, 3),
        ({}, 3),
        ({"passed": 1, "skipped": 1}, 0),
        ({"passed": 1, "skipped": 1, "strict": True}, 1),
        ({"skipped": 1, "strict": True}, 1),
    ],
)
def test_the_worst_end_gives_the_exit_code(given: dict[str, Any], code: int) -> None:
    assert Outcome(**given).exit_code == code
