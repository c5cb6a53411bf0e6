"""Is the task fit to tell right from wrong? What a candidate could leave out without anybody noticing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from kbench.records import CheckResult, Status
from kbench.worker import tensors, variants
from kbench.worker.checks.values import difference, rms

if TYPE_CHECKING:
    from kbench.worker.reference import CaseReference, Trial

# The names under which a task's weaknesses are reported.
ZEROS, CONSTANT, COPY, IGNORED, FIXED = "task:zeros", "task:constant", "task:copy", "task:ignored_input", "task:constant_input"


def weaknesses(reference: CaseReference, trials: Sequence[Trial]) -> list[CheckResult]:
    """Find outputs that zeros, a constant or a copy of an input would pass for, and inputs that make no difference or are never other ones.

    A task all of whose outputs are such has been refused before. Costs a forward for each input of a task that has several.
    """
    if len(trials) < 2 or reference.stateful:  # noqa: PLR2004 - one tells nothing of others
        return []
    ignored = _of_inputs(reference, trials[0])
    found = [*_of_outputs(reference, trials), *ignored]
    if not ignored and not _same_inputs(trials):
        found += [(FIXED, f"{path} is the same in every call: a candidate that takes it for granted would pass") for path in _fixed(reference, trials)]
    return [CheckResult(name=name, status=Status.FAIL, detail=detail) for name, detail in found]


def _of_outputs(reference: CaseReference, trials: Sequence[Trial]) -> list[tuple[str, str]]:
    found = []
    for index, leaf in enumerate(trials[0].expected):
        plain = [trial.expected[index].spec for trial in trials if index < len(trial.expected)]
        if leaf.tensor is None:
            if leaf.spec["k"] != "none" and all(spec == leaf.spec for spec in plain) and not _same_inputs(trials):
                found.append((CONSTANT, f"{leaf.path} is the same in every trial: a constant would pass"))
            continue
        outputs = [trial.expected[index].tensor for trial in trials if index < len(trial.expected)]
        if any(out is None or not out.numel() for out in outputs):
            continue
        given: list[torch.Tensor] = [out for out in outputs if out is not None]
        if not any(bool((out != 0).any()) for out in given):
            found.append((ZEROS, f"{leaf.path} is zero in every trial: zeros would pass"))
        elif all(out.shape == given[0].shape and _near(reference, out, given[0]) for out in given[1:]) and not _same_inputs(trials):
            found.append((CONSTANT, f"{leaf.path} is the same in every trial: a constant would pass"))
        copied = _copied(reference, trials, index)
        if copied and not (reference.beyond_inputs and _differs_beyond(reference, index, copied)):
            found.append((COPY, f"{leaf.path} equals {copied[0]} in every trial: a copy of it would pass"))
    return found


def _copied(reference: CaseReference, trials: Sequence[Trial], index: int) -> list[str]:
    """Paths of the inputs that an output equals in every trial."""
    paths = [path for path, spec in tensors.leaves(tensors.describe(trials[0].args, trusted=True), "input") if spec["k"] == "tensor"]
    return [path for number, path in enumerate(paths) if all(_equals_input(reference, trial, index, number) for trial in trials)]


def _equals_input(reference: CaseReference, trial: Trial, index: int, number: int) -> bool:
    given = tensors.tensors_in(trial.args)
    out = trial.expected[index].tensor if index < len(trial.expected) else None
    return out is not None and number < len(given) and out.shape == given[number].shape and _near(reference, out, given[number].to(out.dtype))


def _differs_beyond(reference: CaseReference, index: int, copied: list[str]) -> bool:
    """Whether a variant tells the output from every input that it equals."""
    paths = [path for path, spec in tensors.leaves(tensors.describe(next(iter(reference.trials())).args, trusted=True), "input") if spec["k"] == "tensor"]
    return all(any(not _equals_input(reference, trial, index, paths.index(path)) for trial in reference.variants()) for path in copied)


def _of_inputs(reference: CaseReference, first: Trial) -> list[tuple[str, str]]:
    """Inputs that may be exchanged without any change; with one input alone, the trials have told."""
    given = tensors.tensors_in(first.args)
    paths = [path for path, spec in tensors.leaves(tensors.describe(first.args, trusted=True), "input") if spec["k"] == "tensor"]
    if len(given) < 2:  # noqa: PLR2004 - see above
        return []
    # What the reference writes into need not be read.
    read = [(number, path) for number, path in enumerate(paths) if number not in first.written]
    return [(IGNORED, f"{path} makes no difference to the output") for number, path in read if _is_ignored(reference, first, number)]


def _fixed(reference: CaseReference, trials: Sequence[Trial]) -> list[str]:
    """Inputs that neither trials nor variants change: tensors, and numbers of which another one makes a difference."""
    first = trials[0]
    numbers = [index for index in range(len(first.args)) if _is_one_number(index, trials) and _counts(reference, first, index)]
    paths = [path for path, spec in tensors.leaves(tensors.describe(first.args, trusted=True), "input") if spec["k"] == "tensor"]
    same = [number for number in range(len(paths)) if number not in first.written and _is_one_tensor(number, trials)]
    if same and reference.beyond_inputs:
        beyond = [first, *reference.variants()]
        same = [number for number in same if _is_one_tensor(number, beyond)]
    return [*(f"input[{index}], {first.args[index]}," for index in numbers), *(paths[number] for number in same)]


def _is_one_number(index: int, trials: Sequence[Trial]) -> bool:
    found = [trial.args[index] if index < len(trial.args) else None for trial in trials]
    return type(found[0]) in (bool, int, float) and all(type(value) is type(found[0]) and value == found[0] for value in found)


def _is_one_tensor(number: int, trials: Sequence[Trial]) -> bool:
    first, *others = ([tensor for at, tensor in enumerate(tensors.tensors_in(trial.args)) if at == number] for trial in trials)
    return bool(first[0].numel()) and all(other and other[0].dtype == first[0].dtype and torch.equal(first[0], other[0]) for other in others)


def _counts(reference: CaseReference, first: Trial, index: int) -> bool:
    """Whether another number in an input's place, which the reference bears, gives other outputs."""
    value = first.args[index]
    for other in (not value,) if isinstance(value, bool) else (value + 1, value - 1, value / 2 if isinstance(value, float) else 0):
        args = list(tensors.clone(first.args))
        args[index] = other
        outputs = reference.outputs_of(args, first.seed)
        if outputs is not None and not reference.agree(outputs, first.expected):
            return True
    return False


def _is_ignored(reference: CaseReference, first: Trial, number: int) -> bool:
    """Whether other values for one input, which the reference bears, change nothing."""
    is_tried = False
    for change in (variants.with_scales, variants.with_signs, variants.with_one_element):
        args = _with_other(first.args, number, change)
        if args is None:
            continue
        outputs = reference.outputs_of(args, first.seed)
        if outputs is None:
            continue
        is_tried = True
        if not reference.agree(outputs, first.expected):
            return False
    return is_tried


def _with_other(args: list[Any], number: int, change: Any) -> list[Any] | None:
    counter = iter(range(10_000))
    changed = False

    def apply(tensor: torch.Tensor) -> torch.Tensor:
        nonlocal changed
        if next(counter) != number:
            return tensor
        other: torch.Tensor = variants.changed([tensor], change)[0]
        changed = not torch.equal(other, tensor)
        return other

    made = [tensors.map_tensors(arg, apply) for arg in tensors.clone(args)]
    return made if changed else None


def _near(reference: CaseReference, actual: torch.Tensor, expected: torch.Tensor) -> bool:
    if not expected.is_floating_point() and not expected.is_complex():
        return bool(torch.equal(actual, expected))
    atol, rtol = reference.tolerance.of(tensors.dtype_name(expected.dtype))
    return not difference(actual, expected, atol * min(1.0, rms(expected)), rtol).outside


def _same_inputs(trials: Sequence[Trial]) -> bool:
    first = tensors.tensors_in(trials[0].args)
    return all(all(torch.equal(a, b) for a, b in zip(first, tensors.tensors_in(trial.args), strict=False) if a.shape == b.shape) for trial in trials[1:])
