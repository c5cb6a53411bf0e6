"""What the judge's clock makes of what a process says that its callers wait: 64 waits of 50 us a round."""

from __future__ import annotations

from typing import Any

import pytest

from kbench.worker.session import CandidateFault
from kbench.worker.timing.side import Side
from kbench.worker.timing.vouch import Vouching

ROUNDS, CALLS, WAIT_S = 4, 64, 50e-6


def waited(*, claimed: float = 1.0, round_s: float, deliver_s: float) -> Any:
    """A side that reports a share of its waits; what a round costs around them, and handing over its outputs."""
    side = Side(None)  # type: ignore[arg-type]
    hidden_s = (1.0 - claimed) * WAIT_S * CALLS
    side.wall_s = [claimed * WAIT_S] * (CALLS - 1) * ROUNDS
    side.wall_excess_s = [round_s + hidden_s] * ROUNDS
    side.deliver_excess_s = [round_s + hidden_s + deliver_s] * ROUNDS
    return side


def test_a_fifth_of_what_callers_wait_is_refused_however_long_handing_over_takes() -> None:
    with pytest.raises(CandidateFault, match="a round of waits; by the judge's clock") as refused:
        Vouching().hold_waits(waited(claimed=0.2, round_s=0.3e-3, deliver_s=2e-3), waited(round_s=0.3e-3, deliver_s=3.5e-3))

    assert refused.value.reason == "exploit:clock"


def test_a_process_that_takes_longer_to_hand_outputs_over_is_not_accused() -> None:
    Vouching().hold_waits(waited(round_s=0.4e-3, deliver_s=2.6e-3), waited(round_s=0.3e-3, deliver_s=2e-3))


def test_work_that_is_left_until_outputs_are_handed_over_is_refused() -> None:
    with pytest.raises(CandidateFault, match="handing over what it returned"):
        Vouching().hold_waits(waited(round_s=0.3e-3, deliver_s=5e-3), waited(round_s=0.3e-3, deliver_s=1e-3))
