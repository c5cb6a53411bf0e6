"""Tests marked `gpu` are selected where there is a GPU."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

# No test leaves a process behind, and none depends on one; those that are about it say otherwise.
os.environ["KBENCH_WARM_S"] = "0"
# Nor does one wait for a kbench that times elsewhere on this machine.
os.environ["KBENCH_LEASE_DIR"] = tempfile.mkdtemp(prefix="leases-of-tests-")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what needs a GPU where there is none, without importing torch to find out."""
    if Path("/dev/nvidiactl").exists():
        return
    chosen = [item for item in items if item.get_closest_marker("gpu") is None]
    left_out = [item for item in items if item.get_closest_marker("gpu") is not None]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = chosen
