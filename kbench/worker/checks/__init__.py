"""The checks of one call, in the order they run; the first that fails gives the reason.

To add one: a file with `check(evidence) -> CheckResult`, a line here, and a candidate in
`kbench/selftest` that only it catches.
"""

from __future__ import annotations

from kbench.worker.checks import draws, dtype, launch, mutation, nan, patched, shape, state, structure, values
from kbench.worker.evidence import Check

CHECKS: dict[str, Check] = {
    "launch": launch.check,
    "structure": structure.check,
    "shape": shape.check,
    "dtype": dtype.check,
    "nan": nan.check,
    "values": values.check,
    "mutation": mutation.check,
    "state": state.check,
    "draws": draws.check,
    "patched": patched.check,
}

# What a failed check is called in a record, where that is not its own name.
REASONS = {"launch": "run", "patched": "exploit:global_state", "precision": "values"}
