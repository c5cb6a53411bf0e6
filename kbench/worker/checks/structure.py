"""Does the output have the nesting, the keys and the kinds of leaves of the reference's?"""

from __future__ import annotations

from collections.abc import Sequence

from kbench.records import CheckResult
from kbench.worker.checks.results import failed, passed
from kbench.worker.evidence import Evidence
from kbench.worker.tensors import Spec

_KIND_NAMES = {"seq": "a tuple or list", "dict": "a dict", "none": "None", "tensor": "a tensor"}


def check(evidence: Evidence) -> CheckResult:
    """Compare the trees; a list may stand for a tuple, nothing else for anything else."""
    if difference := _difference(evidence.tree, evidence.expected_tree, "output"):
        return failed("structure", difference)
    return passed("structure")


def _difference(actual: Spec, expected: Spec, path: str) -> str:
    if actual.get("k") != expected["k"]:
        return f"{path}: {_name(actual)}, expected {_name(expected)}"
    if expected["k"] == "tensor" and actual.get("device") != expected.get("device"):
        return f"{path}: on {actual.get('device')}, expected on {expected.get('device')}"
    if expected["k"] not in ("seq", "dict"):
        return ""
    keys, expected_keys = (
        (actual["keys"], expected["keys"]) if expected["k"] == "dict" else (list(range(len(actual["items"]))), list(range(len(expected["items"]))))
    )
    if expected["k"] == "seq" and len(keys) != len(expected_keys):
        return f"{path}: {len(keys)} items, expected {len(expected_keys)}"
    if keys != expected_keys:
        return f"{path}: keys {_keys(keys)}, expected {_keys(expected_keys)}"
    pairs = zip(keys, actual["items"], expected["items"], strict=True)
    return next(filter(None, (_difference(a, e, f"{path}[{key}]") for key, a, e in pairs)), "")


def _name(spec: Spec) -> str:
    kind = str(spec.get("k"))
    return str(spec.get("v")) if kind == "other" else _KIND_NAMES.get(kind, f"a Python {kind}")


def _keys(keys: Sequence[object]) -> str:
    return str(keys)[:80]
