"""The reference in the judge's hands: its cases, the inputs of each trial, and what is expected of them."""

from __future__ import annotations

import contextlib
import copy
import inspect
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from kbench.records import Case, CheckResult
from kbench.worker import admission, invariants, problem, tensors, variants
from kbench.worker.candidate import changed_names, describe_output, form, load_module, state_of, versions
from kbench.worker.checks.values import difference, rms
from kbench.worker.discrete import Undecided
from kbench.worker.evidence import Leaf, Tolerance
from kbench.worker.oracle import Float64Oracle, widen
from kbench.worker.seeding import add_generator, derive_seed, generator_state, seed_everything

if TYPE_CHECKING:
    from kbench.worker.timing.work import Work

# Expected outputs are kept between candidates up to this; what is larger is computed anew for each.
_CACHE_BYTES = {"cpu": 2 * 2**30, "cuda": 16 * 2**30}
# The reference is run against itself on so many trials: state that builds up shows from the second on.
_SELF_CHECK_TRIALS = 2
# Of the tolerance: what the reference may err by on a variant, and what rounding of its inputs may move it by.
_SOUND_SHARE, _STEADY_SHARE = 0.1, 0.5
# What a CPU computes in about a second, as a rule.
_SCREENED_ELEMENTS = 2**24


_EXCHANGED = "the reference puts other values into a list or dict among its inputs: what a candidate leaves there is not compared"


class ReferenceFault(Exception):
    """The reference is at fault: broken, not repeatable, or unable to tell right from wrong."""


@contextlib.contextmanager
def as_fault(words: str) -> Iterator[None]:
    """Blame the reference for whatever is raised within, after these words; `sys.exit` in its file, too."""
    try:
        yield
    except (ReferenceFault, torch.cuda.OutOfMemoryError, MemoryError):
        raise
    except admission.Inadmissible as obstacle:
        raise ReferenceFault(f"{words} {obstacle}") from None
    except (Exception, SystemExit) as error:
        raise ReferenceFault(f"{words} {_said(error)}") from error


def _blaming(trials: Iterator[Trial]) -> Iterator[Trial]:
    """The same trials; what is raised on the way to one is the reference's fault."""
    while True:
        with as_fault("it cannot be judged:"):
            trial = next(trials, None)
        if trial is None:
            return
        yield trial


@dataclass(slots=True, kw_only=True)
class Trial:
    """One set of inputs (on the judge's device, private to it) and what the reference makes of it."""

    index: int
    seed: int
    args: list[Any]
    tree: tensors.Spec
    expected: list[Leaf]
    generators: Mapping[str, str]
    draws: bool
    oracle: Float64Oracle
    undecided: Undecided | None = None
    # What the weights of its own that the reference changed are after the call, by name.
    left: Mapping[str, torch.Tensor] = field(default_factory=dict)
    variant: str = ""
    weights: list[tuple[str, torch.Tensor]] | None = None
    sound: bool | None = None

    @property
    def returned(self) -> list[Leaf]:
        """Of what is expected, the leaves that the reference returns."""
        return [leaf for leaf in self.expected if leaf.input is None]

    @property
    def written(self) -> list[int]:
        """The numbers of the input tensors that the reference writes into."""
        return [leaf.input for leaf in self.expected if leaf.input is not None]


class Reference:
    """A reference file, loaded once."""

    def __init__(self, path: Path, device: torch.device, *, root_seed: int, label: str, cuda_on_cpu: bool = False) -> None:
        self.device = device
        self.cuda_on_cpu = cuda_on_cpu
        self.calling: Callable[[], AbstractContextManager[None]] = _drawing_as_cuda() if cuda_on_cpu else nullcontext
        self._root_seed = root_seed
        self._label = label
        # A CPU draws and sends a gigabyte in four seconds, a GPU makes it in a few milliseconds.
        self._draws_inputs_there = device.type != "cpu"
        with as_fault(f"{path.name} cannot be imported:"):
            self.module = load_module(path, f"kbench_reference_{path.stem}")
        for name in ("Model", "get_inputs", "get_init_inputs"):
            if not callable(getattr(self.module, name, None)):
                raise ReferenceFault(f"{path.name} defines no `{name}`")

    def seed(self, *labels: object) -> int:
        """Derive a seed of this run for this task."""
        return derive_seed(self._root_seed, self._label, *labels)

    def init_args(self, case: Case) -> list[Any]:
        """The constructor arguments of a case."""
        seed_everything(self.seed(case.name, "arguments"))
        given = _call(self.module.get_init_inputs, case.init, "get_init_inputs")
        return list(given) if isinstance(given, (list, tuple)) else [given]

    def construct(self, case: Case, init: list[Any]) -> Any:
        """A fresh model of a case; the same seed gives the same weights."""
        seed_everything(self.seed(case.name, "init"))
        with as_fault("Model(...) raised"):
            model = self.module.Model(*copy.deepcopy(init))
            if isinstance(model, torch.nn.Module):
                model.to(self.device)
        return model

    def survives_on_cpu(self, case: Case, init: list[Any], args: list[Any], weights: list[tuple[str, torch.Tensor]] | None) -> bool:
        """Whether a forward on these arguments raises nothing on a CPU."""
        cpu = torch.device("cpu")
        seed_everything(self.seed(case.name, "init"))
        try:
            model = self.module.Model(*copy.deepcopy(init))
            with torch.no_grad():
                for (_, tensor), (_, given) in zip(state_of(model), weights or [], strict=False):
                    tensor.copy_(given)
                model(*_to_device(tensors.clone(args), cpu))
        except (Exception, SystemExit):  # noqa: BLE001 - whatever it is, it may be worse on a GPU
            return False
        return True

    def inputs(self, case: Case, *labels: object) -> list[Any]:
        """Fresh inputs of a case on the judge's device, dtypes as they were made.

        They are drawn on that device, or on a CPU and moved where get_inputs does not bear another default device.
        """
        seed = self.seed(case.name, "inputs", *labels)
        if self._draws_inputs_there:
            seed_everything(seed)
            try:
                with self.device:
                    return self._given(_call(self.module.get_inputs, case.inputs, "get_inputs"))
            except ReferenceFault:
                self._draws_inputs_there = False
        seed_everything(seed)
        return self._given(_call(self.module.get_inputs, case.inputs, "get_inputs"))

    def _given(self, given: object) -> list[Any]:
        if not isinstance(given, (list, tuple)):
            raise ReferenceFault(f"get_inputs returned {type(given).__name__}; a list is needed")
        with as_fault("get_inputs gives"):
            return [admission.admit(value, f"input[{index}]", self.device) for index, value in enumerate(given)]


class CaseReference:
    """One case of a reference: its weights, and its trials in order.

    Draws are judged by their distribution where `distribution_cases` is not 0; so many cases share the false alarms.
    """

    def __init__(
        self,
        reference: Reference,
        case: Case,
        *,
        trials: int,
        tolerance: Tolerance,
        beyond_inputs: bool = True,
        strict_float32: bool = False,
        distribution_cases: int = 0,
    ) -> None:
        self.reference = reference
        self.case = case
        self.trial_count = trials
        self.tolerance = tolerance
        self.beyond_inputs = beyond_inputs
        self.strict_float32 = strict_float32
        self.distribution_cases = distribution_cases
        self.init = reference.init_args(case)
        with as_fault("get_init_inputs gives"):
            self.init_spec = admission.pickled(self.init, "in its list")
        self.init_seed = reference.seed(case.name, "init")
        model = reference.construct(case, self.init)
        for name, tensor in state_of(model):
            if obstacle := tensors.obstacle(tensor):
                raise ReferenceFault(f"Model has {obstacle} for its `{name}`, which no candidate can be given: register its parts as plain tensors")
        self.weights = [(name, tensor.detach().clone()) for name, tensor in state_of(model)]
        self.warnings: list[str] = []
        self.weaknesses: list[CheckResult] = []
        self.stateful = False
        # Sets of inputs for the clock, made when first timed: timing/pairs.py.
        self.pool: list[list[Any]] | None = None
        self.draws_shapes = False
        self.draw_s = 0.0
        self.returned: list[torch.Tensor] = []
        self._kept: dict[str, list[Trial]] = {}
        # What the inputs of all trials have, and variants keep.
        self.facts: invariants.Facts = []
        self._asserts: bool | None = None
        # What a forward pass has to do, counted when first timed on a GPU: timing/work.py.
        self.work: Work | None = None
        self._self_check()

    def trials(self) -> Iterator[Trial]:
        """Every trial in order, as one instance of the reference meets them."""
        return self._remembered("trials", self._make_trials)

    def variants(self) -> Iterator[Trial]:
        """Trials beyond the given inputs, that with other weights last; none where the reference keeps state.

        Who fails one is held against `is_sound` first.
        """
        return self._remembered("variants", self._make_variants)

    def kept_variants(self) -> list[Trial]:
        """The variants of inputs that were tried and are still there, but for those where the reference is not to be relied upon."""
        return [trial for trial in self._kept.get("variants", ()) if trial.weights is None and trial.sound is not False]

    def _remembered(self, name: str, make: Callable[[], Iterator[Trial]]) -> Iterator[Trial]:
        """What `make` gives, kept for the next candidate unless it is too large."""
        if name in self._kept:
            yield from self._kept[name]
            return
        kept: list[Trial] | None = []
        n_bytes = 0
        for trial in _blaming(make()):
            n_bytes += _bytes_of(trial)
            if n_bytes > _CACHE_BYTES[self.reference.device.type]:
                kept = None
            if kept is not None:
                kept.append(trial)
            yield trial
        if kept is not None:
            self._kept[name] = kept

    def _make_trials(self) -> Iterator[Trial]:
        model = self.reference.construct(self.case, self.init)
        for index in range(self.trial_count):
            yield self._run(model, index, self.reference.inputs(self.case, index))

    def _make_variants(self) -> Iterator[Trial]:
        if self.stateful:
            return
        for name, ways in variants.INPUTS.items():
            for change in ways:
                args = self.reference.inputs(self.case, name)
                seed_everything(self.reference.seed(self.case.name, "variant", name))
                trial = self._try_variant(name, variants.changed(args, change, self.facts), None)
                if trial is not None:
                    yield trial
                    break
        weights = self.other_weights()
        trial = self._try_variant(variants.WEIGHTS, self.reference.inputs(self.case, variants.WEIGHTS), weights) if weights else None
        if trial is not None:
            yield trial

    def trial_on(self, args: list[Any], *, weights: list[tuple[str, torch.Tensor]] | None = None) -> Trial:
        """A trial of its own on these inputs, with other weights if any are given.

        Raises:
            ReferenceFault: the reference cannot do it.
        """
        return self._run(self._model_with(weights), self.trial_count, args, weights=weights)

    def other_weights(self) -> list[tuple[str, torch.Tensor]]:
        """Other weights, by name in order; empty where none would differ."""
        model = self.reference.construct(self.case, self.init)
        parameters = set(dict(model.named_parameters())) if isinstance(model, torch.nn.Module) else set()
        seed_everything(self.reference.seed(self.case.name, variants.WEIGHTS))
        made = [(name, variants.changed_weight(tensor, is_parameter=name in parameters).clone()) for name, tensor in state_of(model)]
        is_other = any(not torch.equal(old, new) for (_, old), (_, new) in zip(self.weights, made, strict=True))
        return made if is_other else []

    def _try_variant(self, name: str, args: list[Any], weights: list[tuple[str, torch.Tensor]] | None) -> Trial | None:
        """Run the reference on a variant; None where it raises, or gives anything but finite values."""
        if not self._is_harmless(args, weights):
            return None
        try:
            trial = self._run(self._model_with(weights), self.trial_count, args, weights=weights)
        except ReferenceFault:
            return None
        trial.variant = name
        return trial if all(map(_is_finite, trial.expected)) else None

    def _model_with(self, weights: list[tuple[str, torch.Tensor]] | None) -> Any:
        model = self.reference.construct(self.case, self.init)
        if weights is not None:
            _give(model, weights)
        return model

    def aged(self, calls: Iterable[Trial]) -> Trial:
        """The last of these calls, as an instance answers it that has met all those before.

        Raises:
            ReferenceFault: the reference cannot do it.
        """
        model = self._model_with(None)
        before, given = versions(model), None
        for trial in calls:
            if trial.weights is not None:
                _give(model, trial.weights)
                before, given = versions(model), trial.weights
            tree, expected, generators = self._forward(model, trial.args, trial.seed)
        oracle, left = Float64Oracle(None, _no_oracle, tensors.leaves_in), self._left_in_weights(model, before, given)
        return replace(trial, tree=tree, expected=expected, generators=generators, oracle=oracle, undecided=None, left=left)

    def overwritten(self, args: list[Any], others: list[Any], seed: int) -> set[int]:
        """Which tensors of a result a later call of the reference changes: state that it returns as it is.

        Raises:
            ReferenceFault: the reference cannot do it.
        """
        model = self._model_with(None)
        results: list[torch.Tensor] = []
        self._forward(model, args, seed, given=results)
        before = [_own(tensor) for tensor in results]
        self._forward(model, others, seed)
        return {index for index, (old, now) in enumerate(zip(before, results, strict=True)) if not _is_equal(old, now)}

    def found_stateful(self) -> None:
        """Take note that outputs depend on how often the reference was called."""
        if not self.stateful:
            self.stateful = True
            self.warnings.append("the reference keeps state between calls: outputs depend on how often it was called")
            self._kept.pop("variants", None)

    def _is_harmless(self, args: list[Any], weights: list[tuple[str, torch.Tensor]] | None) -> bool:
        """Whether a variant can be run on a GPU: there, what raises on a CPU may end the judge.

        What may do so is tried on a CPU first, or left alone where that would take long.
        """
        if self.reference.device.type != "cuda":
            return True
        if self._asserts is None:
            with variants.AssertingCalls() as calls:
                first = next(iter(self.trials()))
                self._forward(self._model_with(None), first.args, first.seed)
            self._asserts = calls.found
        if not self._asserts:
            return True
        given = [*tensors.tensors_in(args), *(tensor for _, tensor in self.weights)]
        return sum(tensor.numel() for tensor in given) <= _SCREENED_ELEMENTS and self.reference.survives_on_cpu(self.case, self.init, args, weights)

    def is_sound(self, trial: Trial) -> bool:
        """Whether a variant tells right from wrong.

        It does where the reference repeats itself, is near to its own float64 run, and moves within tolerance
        when its inputs move by what float32 rounds; elsewhere (ties, cancellation, chaos) an honest candidate may differ.
        """
        if trial.sound is None:
            try:
                trial.sound = self._find_sound(trial)
            except ReferenceFault:
                trial.sound = False
        return trial.sound

    def _find_sound(self, trial: Trial) -> bool:
        again = self._forward(self._model_with(trial.weights), trial.args, trial.seed)[1]
        if not self.agree(again, trial.expected, share=_SOUND_SHARE):
            return False
        truths = trial.oracle.outputs()
        wide = [] if truths is None else [replace(leaf, tensor=truth) for leaf, truth in zip(trial.expected, truths, strict=True)]
        for leaf, truth in zip(trial.expected, wide, strict=False):
            if truth.tensor is not None and leaf.tensor is not None and not self._is_near(truth, leaf, share=_SOUND_SHARE):
                return False
        seed_everything(trial.seed)
        moved = self._forward(self._model_with(trial.weights), variants.nudged(trial.args), trial.seed)[1]
        return self.agree(moved, trial.expected, share=_STEADY_SHARE)

    def _run(self, model: Any, index: int, args: list[Any], *, weights: list[tuple[str, torch.Tensor]] | None = None) -> Trial:
        seed = self.reference.seed(self.case.name, "forward", index)
        before = versions(model)
        seed_everything(seed)
        untouched = generator_state(self.reference.device)
        tree, expected, generators = self._forward(model, args, seed)
        written = [leaf.input for leaf in expected if leaf.input is not None]
        oracle, undecided = self._oracle(args, seed, draws=generators != untouched, weights=weights, written=written)
        return Trial(
            index=index,
            seed=seed,
            args=args,
            tree=tree,
            expected=expected,
            generators=generators,
            draws=generators != untouched,
            oracle=oracle,
            undecided=undecided,
            left=self._left_in_weights(model, before, weights),
            weights=weights,
        )

    def _left_in_weights(self, model: Any, before: Mapping[str, int], given: list[tuple[str, torch.Tensor]] | None) -> dict[str, torch.Tensor]:
        """Those weights of a model that were written to since `before`, or are others than it was given: `.data` counts no versions."""
        own = dict(state_of(model))
        written = set(changed_names(before, versions(model)))
        kept = [(name, was) for name, was in given or self.weights if name in own and own[name].shape == was.shape and own[name].dtype == was.dtype]
        return {name: _own(own[name]) for name, was in kept if name in written or not _same_bits(own[name].contiguous(), was.contiguous())}

    def _forward(
        self, model: Any, args: list[Any], seed: int, *, given: list[torch.Tensor] | None = None
    ) -> tuple[tensors.Spec, list[Leaf], dict[str, str]]:
        """What a model makes of private copies of `args`: the tree that it returns, every leaf to compare, and the generators."""
        own = tensors.clone(args)
        held = tensors.leaves_in(own)
        lent = tensors.tensors_in(own)
        before = [(tensor._version, form(tensor)) for tensor in lent]
        seed_everything(seed)
        with as_fault("Model.forward raised"), torch.no_grad(), self.reference.calling():
            result = model(*own)
        generators = generator_state(self.reference.device)
        given = [] if given is None else given
        tree = describe_output(result, given)
        remaining = iter(given)
        expected = []
        for path, spec in tensors.leaves(tree):
            if spec["k"] == "other":
                raise ReferenceFault(f"Model.forward returned {spec['v']} at {path}, which cannot be compared: {admission.RETURN_ADVICE}")
            expected.append(Leaf(path=path, spec=spec, tensor=_own(next(remaining)) if spec["k"] == "tensor" else None))
        # A version alone misses what an extension wrote, bits alone what was the same before.
        originals = tensors.tensors_in(args)
        is_written = [(now._version, form(now)) != then or not _same_bits(now, was) for now, then, was in zip(lent, before, originals, strict=True)]
        if any(is_written):
            expected += _left_in(args, lent, is_written)
        if all(leaf.spec["k"] == "none" for leaf in expected):
            raise ReferenceFault("Model.forward returned nothing to compare: neither a value, nor anything that it wrote into its inputs")
        self._note_exchanged(held, tensors.leaves_in(own))
        return tree, expected, generators

    def _note_exchanged(self, before: list[Any], after: list[Any]) -> None:
        """Warn of what is put into the lists and dicts among the inputs: they are the caller's, but nobody compares them."""
        if [id(leaf) for leaf in before] != [id(leaf) for leaf in after] and _EXCHANGED not in self.warnings:
            self.warnings.append(_EXCHANGED)

    def _oracle(
        self, args: list[Any], seed: int, *, draws: bool, weights: list[tuple[str, torch.Tensor]] | None, written: list[int]
    ) -> tuple[Float64Oracle, Undecided]:
        """The oracles for one trial; they start from a fresh model, so there are none for a stateful reference."""

        def run(convert: Callable[[torch.Tensor], torch.Tensor], given: list[Any] = args) -> Any:
            if self.stateful:
                _no_oracle()
            model = self._model_with(weights)
            if isinstance(model, torch.nn.Module) and convert is widen:
                model.double()
            seed_everything(seed)
            with torch.no_grad(), self.reference.calling():
                return leaves_after(model, tensors.map_tensors(tensors.clone(given), convert), written)

        def nudged(number: int) -> list[Any]:
            seed_everything(seed ^ number)
            moved = variants.nudged(tensors.clone(args))
            if not self._is_harmless(moved, weights):
                _no_oracle()
            return tensors.leaves_in(run(_as_it_is, moved))

        oracle = Float64Oracle((lambda: run(_as_it_is)) if draws else None, lambda: run(widen), tensors.leaves_in)
        return oracle, Undecided(lambda: tensors.leaves_in(run(_as_it_is)), nudged, oracle.leaves)

    def _self_check(self) -> None:
        """Hold the reference against itself before anyone is held against it."""
        again = self.reference.construct(self.case, self.init)
        first: Trial | None = None
        told_apart, same_inputs, to_the_bit = False, True, True
        facts: invariants.Facts = []
        for trial in self.trials():
            if trial.index < _SELF_CHECK_TRIALS:
                repeated = self._forward(again, trial.args, trial.seed)[1]
                self._check_repeats(trial, repeated)
                to_the_bit = to_the_bit and _is_same(repeated, trial.expected)
            self._check_finite(trial)
            last = trial
            facts = invariants.of(trial.args) if first is None else invariants.common(facts, invariants.of(trial.args))
            if first is None:
                first = trial
                continue
            told_apart = told_apart or not self.agree(first.expected, trial.expected)
            same_inputs = same_inputs and _same_args(first, trial)
        assert first is not None
        self.facts = invariants.believed(facts)
        self._check_tells_apart(first, told_apart=told_apart, same_inputs=same_inputs, alone=last is first)
        if self._keeps_state(last, again, to_the_bit=to_the_bit):
            self.found_stateful()
        self.weaknesses = problem.weaknesses(self, list(itertools.islice(self.trials(), _SELF_CHECK_TRIALS + 1)))
        self.warnings += [f"{weakness.name}: {weakness.detail}" for weakness in self.weaknesses]

    def _keeps_state(self, last: Trial, again: Any, *, to_the_bit: bool) -> bool:
        """Whether an instance that was called before answers otherwise than a fresh one.

        State that moves slowly shows within tolerance only: where calls change parameters or buffers, and what two
        instances made of the same calls was the same `to_the_bit`, any bit counts.
        """
        model = again if not last.index else self.reference.construct(self.case, self.init)
        leaves = self._forward(model, last.args, last.seed)[1]
        if last.left and to_the_bit and not _is_same(leaves, last.expected):
            return True
        return not self.agree(leaves, last.expected)

    def outputs_of(self, args: list[Any], seed: int) -> list[Leaf] | None:
        """What a fresh instance returns; None where that raises, or stops a GPU for good."""
        if not self._is_harmless(args, None):
            return None
        try:
            return self._forward(self._model_with(None), args, seed)[1]
        except ReferenceFault:
            return None

    def _check_repeats(self, trial: Trial, leaves: list[Leaf]) -> None:
        if not self.agree(leaves, trial.expected):
            raise ReferenceFault(
                f"task:unrepeatable: the reference is not repeatable: two runs with one seed differ{_where(leaves, trial.expected)}; "
                "seed or remove what it draws outside of torch, random and numpy"
            )

    def _check_finite(self, trial: Trial) -> None:
        if self.tolerance.allow_nan:
            return
        for leaf in trial.expected:
            if count := int(torch.isnan(_float_of(leaf)).sum()):
                raise ReferenceFault(f"the reference gives {count} NaN in {leaf.path}; `allow_nan = true` accepts that")

    def _check_tells_apart(self, first: Trial, *, told_apart: bool, same_inputs: bool, alone: bool) -> None:
        """Refuse a task that a constant would pass."""
        outputs = [leaf for leaf in first.expected if leaf.spec["k"] != "none" and (leaf.tensor is None or leaf.tensor.numel())]
        if outputs and all(leaf.tensor is not None and rms_of(leaf) == 0.0 for leaf in outputs) and not told_apart:
            raise ReferenceFault(f"{problem.ZEROS}: the reference gives all zeros: a candidate that computes nothing would pass")
        if alone or not outputs or told_apart or not tensors.tensors_in(first.args):
            return
        if not same_inputs:
            raise ReferenceFault(f"{problem.CONSTANT}: the reference gives one and the same output for other inputs: a constant would pass")
        self.warnings.append("task:same_inputs: get_inputs gives the same inputs for every seed: a constant would pass")

    def agree(self, actual: list[Leaf], expected: list[Leaf], *, share: float = 1.0) -> bool:
        """Whether two runs agree within `share` of the tolerance."""
        if len(actual) != len(expected):
            return False
        for a, e in zip(actual, expected, strict=True):
            if a.tensor is None or e.tensor is None:
                if a.spec != e.spec:
                    return False
            elif a.tensor.shape != e.tensor.shape or a.tensor.dtype != e.tensor.dtype:
                return False
            elif e.tensor.is_floating_point() or e.tensor.is_complex():
                if not self._is_near(a, e, share=share):
                    return False
            elif not torch.equal(a.tensor, e.tensor):
                return False
        return True

    def _is_near(self, actual: Leaf, expected: Leaf, *, share: float) -> bool:
        assert actual.tensor is not None
        assert expected.tensor is not None
        atol, rtol = self.tolerance.of(expected.spec["dtype"])
        size = rms(expected.tensor)
        # A share is asked for of variants, whose tolerance grows with the output.
        size = min(1.0, size) if share == 1.0 else size
        return not difference(actual.tensor, expected.tensor, share * atol * size, share * rtol).outside


def _drawing_as_cuda() -> Callable[[], AbstractContextManager[None]]:
    """Where a reference is called whose candidates draw as on a device: from Philox, under the same seeds."""
    from kbench.worker.cuda_on_cpu import draws, python_side  # noqa: PLC0415 - a judge on a GPU has no use for it

    add_generator("cuda", draws.default_generator)
    return partial(python_side.device, draws_there=True)


def rms_of(leaf: Leaf) -> float:
    """The size of a leaf: its rms; infinities count as 1."""
    assert leaf.tensor is not None
    tensor = leaf.tensor
    if tensor.is_floating_point() and bool(torch.isinf(tensors.calculable(tensor)).any()):
        return 1.0
    return rms(tensor if tensor.is_floating_point() or tensor.is_complex() else tensor.double())


def leaves_after(model: Callable[..., Any], args: list[Any], written: Iterable[int]) -> list[Any]:
    """Every leaf of what a model returns, then what it leaves in the input tensors of these numbers."""
    lent = tensors.tensors_in(args)
    result = model(*args)
    return [*tensors.leaves_returned(result), *(lent[number] for number in written)]


def _left_in(args: list[Any], lent: list[torch.Tensor], is_written: list[bool]) -> Iterator[Leaf]:
    """What a call left in the inputs that it wrote into, as leaves to compare."""
    given = [path for path, spec in tensors.leaves(tensors.describe(args, trusted=True), "input") if spec["k"] == "tensor"]
    for number, (path, tensor) in enumerate(zip(given, lent, strict=True)):
        if is_written[number]:
            path = f"{path} after the call, which the reference writes into"
            yield Leaf(path=path, spec=tensors.describe(tensor), tensor=_own(tensor), input=number)


def _float_of(leaf: Leaf) -> torch.Tensor:
    """A leaf of floats as a tensor; an empty one for a leaf of any other kind."""
    if leaf.tensor is not None and (leaf.tensor.is_floating_point() or leaf.tensor.is_complex()):
        return tensors.calculable(leaf.tensor)
    return torch.tensor([tensors.scalar(leaf.spec)] if leaf.spec["k"] == "float" else [], dtype=torch.float64)


def _is_finite(leaf: Leaf) -> bool:
    return bool(torch.isfinite(_float_of(leaf)).all())


def _call(function: Callable[..., Any], arguments: Mapping[str, object], name: str) -> Any:
    try:
        inspect.signature(function).bind(**arguments)
    except TypeError as error:
        raise ReferenceFault(f"{name} does not take the arguments of the case: {error}") from None
    with as_fault(f"{name} raised"):
        return function(**arguments)


def _said(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0][:300] if text else ''}".rstrip(": ")


def _to_device(value: Any, device: torch.device) -> Any:
    return tensors.map_tensors(value, lambda tensor: tensor.detach().to(device))


def _where(actual: list[Leaf], expected: list[Leaf]) -> str:
    """The first place where two runs differ, for the message."""
    for a, e in zip(actual, expected, strict=False):
        if a.tensor is not None and e.tensor is not None and a.tensor.shape == e.tensor.shape and a.tensor.numel():
            one, other = a.tensor.reshape(-1), e.tensor.reshape(-1)
            wrong = ((one != other) & ~((one != one) & (other != other))).nonzero()
            if len(wrong):
                at = int(wrong[0])
                return f" ({e.path}: {one[at].item()} against {other[at].item()}, {len(wrong)} of {len(one)} elements)"
    return ""


def _is_same(one: list[Leaf], other: list[Leaf]) -> bool:
    """Whether two runs gave the same values, each NaN in its place."""
    if [leaf.spec for leaf in one] != [leaf.spec for leaf in other]:
        return False
    pairs = [(a.tensor, b.tensor) for a, b in zip(one, other, strict=True) if a.tensor is not None and b.tensor is not None]
    return all(_is_equal(a, b) for a, b in pairs)


def _is_equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    return bool(((one == other) | ((one != one) & (other != other))).all())


def _give(model: Any, weights: list[tuple[str, torch.Tensor]]) -> None:
    """Copy weights into those of a model that have their names."""
    own = dict(state_of(model))
    with torch.no_grad():
        for name, given in weights:
            own[name].copy_(given)


def _as_it_is(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def _no_oracle() -> NoReturn:
    raise ReferenceFault("a stateful reference has no oracle")


def _own(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone()


def _same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    a, b = tensors.span(one).view(torch.uint8), tensors.span(other).view(torch.uint8)
    return bool(torch.equal(a, b))


def _same_args(one: Trial, other: Trial) -> bool:
    pairs = list(zip(tensors.tensors_in(one.args), tensors.tensors_in(other.args), strict=False))
    return all(a.shape == b.shape and a.stride() == b.stride() and a.dtype == b.dtype and _same_bits(a, b) for a, b in pairs)


def _bytes_of(trial: Trial) -> int:
    held = [*tensors.tensors_in(trial.args), *(leaf.tensor for leaf in trial.expected if leaf.tensor is not None), *trial.left.values()]
    return sum(tensor.numel() * tensor.element_size() for tensor in held)
