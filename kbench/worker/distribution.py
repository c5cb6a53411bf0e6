"""Does a model that draws by means of its own draw what the reference draws? Samples of both, told apart if they can be.

For `draws = "distribution"`: the same inputs, many calls, other seeds on either side. What of the outputs
does not vary is compared as ever; what varies is put to the exact tests of `twosample`, twice on
independent samples before anyone is refused.
"""

from __future__ import annotations

import itertools
import math
import random
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from kbench.records import CheckResult, Status
from kbench.worker import tensors, twosample
from kbench.worker.checks.results import failed
from kbench.worker.checks.values import rms
from kbench.worker.evidence import Evidence, Leaf, Tolerance
from kbench.worker.reference import ReferenceFault, Trial, leaves_after
from kbench.worker.seeding import seed_everything

if TYPE_CHECKING:
    from kbench.worker.session import CaseSession

# At most so many right candidates in a run of one candidate are refused, all cases and inputs together.
FALSE_ALARMS = 1e-4
# Sets of inputs, each with samples of its own.
INPUT_SETS = 2
# Seeds on each side, and calls after each of them without another seed; outputs of few elements need more.
SEEDS, CALLS = 64, 4
SEEDS_OF_FEW, FEW_ELEMENTS = 192, 64
# So many elements of an output are kept of every call: whole rows of the output, and whole columns.
KEPT_ELEMENTS = 2**14
# Blocks of calls that are made a second time under the same seed.
_REPEATED_SEEDS = 3
_CHECK = "draws"
# A sample takes no longer, but for the least number of seeds: a slow reference must not eat the deadline.
SAMPLE_S, LEAST_SEEDS = 5.0, 16
# Timed calls that are kept for the same question, in so much memory; each is held against so many of the reference's.
TIMED_CALLS, TIMED_LEAST, _TIMED_BYTES = 24, 8, 2**30
_TIMED_REFERENCES = 19
# The share of timed calls among which those are chosen.
TIMED_SHARE = 0.3
# How often a right candidate may look wrong there; two such questions are asked.
_TIMED_FALSE_ALARMS = 5e-5

RunChecks = Callable[[Evidence], CheckResult | None]


def check(session: CaseSession, trials: list[Trial], cases: int, run_checks: RunChecks) -> CheckResult:
    """Sample reference and candidate at the inputs of the first trials, and say whether they draw alike.

    `cases` share the false alarms. `run_checks` asks of every call what does not depend on the draws.

    Raises:
        ReferenceFault: the reference keeps state, so that its calls are of no one distribution.
    """
    if session.reference.stateful:
        raise ReferenceFault('the reference keeps state between calls: there is no one distribution for `draws = "distribution"`')
    started = time.monotonic()
    level = math.sqrt(FALSE_ALARMS / (cases * INPUT_SETS))
    told = []
    for index, trial in enumerate(trials[:INPUT_SETS]):
        result = _Comparison(session, trial, f"inputs {index}", level, run_checks).run()
        if result.status is not Status.PASS:
            return replace(result, seconds=time.monotonic() - started)
        told.append(result.detail)
    words = f"the reference's distribution: {'; '.join(told)}; a right candidate is refused once in {1 / FALSE_ALARMS:,.0f} runs at most"
    return CheckResult(name=_CHECK, status=Status.PASS, detail=words, seconds=time.monotonic() - started)


@dataclass(slots=True)
class _Kept:
    """What is kept of one output: `rows` and `columns` of it are looked at, the range over calls is of all of it."""

    path: str
    shape: torch.Size
    rows: torch.Tensor
    columns: torch.Tensor
    low: list[torch.Tensor]
    high: list[torch.Tensor]
    values: tuple[list[torch.Tensor], list[torch.Tensor]]


class _Comparison:
    """Reference against candidate at one set of inputs."""

    def __init__(self, session: CaseSession, trial: Trial, label: str, level: float, run_checks: RunChecks) -> None:
        self._session = session
        self._reference = session.reference
        self._trial = trial
        self._label = label
        self._level = level
        self._run_checks = run_checks
        self._model = self._reference.reference.construct(self._reference.case, self._reference.init)
        self._generator = torch.Generator().manual_seed(secrets.randbits(62))
        self._few = all(leaf.tensor is None or leaf.tensor.numel() < FEW_ELEMENTS for leaf in trial.expected)

    def run(self) -> CheckResult:
        """Ask all questions once; what stands out, once more of an independent sample."""
        seeds = SEEDS_OF_FEW if self._few else SEEDS
        first = self._sample("first", seeds)
        if isinstance(first, CheckResult):
            return first
        outputs = self._varying(first)
        if isinstance(outputs, CheckResult):
            return outputs
        if (problem := self._repeat_seeds()) is not None:
            return problem
        sized = f"{len(first[0].values[0]) * CALLS} calls a side"
        if not outputs:
            return CheckResult(name=_CHECK, status=Status.PASS, detail=f"{sized}, no output varies beyond the tolerance")
        permutations = max(twosample.PERMUTATIONS, math.ceil(2 / self._level))
        answer = twosample.compare(outputs, level=self._level, generator=self._generator, permutations=permutations)
        passed = CheckResult(name=_CHECK, status=Status.PASS, detail=f"{sized}, {answer.asked} questions, p = {answer.p:.2g}")
        if answer.p > self._level:
            return passed
        second = self._sample("second", seeds)
        if isinstance(second, CheckResult):
            return second
        outputs = self._varying(second)
        if isinstance(outputs, CheckResult):
            return outputs
        only = frozenset(finding.key for finding in answer.findings)
        again = twosample.compare(outputs, level=self._level, generator=self._generator, only=only, permutations=permutations)
        if again.p > self._level:
            return passed
        words = "; ".join(dict.fromkeys(f"{finding.path}: {finding.words}" for finding in again.findings[:3]))
        return failed(_CHECK, f"not the reference's distribution: {words} (p = {answer.p:.2g} and {again.p:.2g} in two samples of {sized})")

    def _sample(self, name: str, seeds: int) -> list[_Kept] | CheckResult:
        """Call both sides under seeds of their own; what is kept of each output, or what failed besides."""
        kept: list[_Kept] = []
        started = time.monotonic()
        for block in range(seeds):
            if block >= LEAST_SEEDS and time.monotonic() - started > SAMPLE_S:
                break
            theirs = self._reference_calls(self._seed(name, "reference", block))
            kept = kept or _places(self._trial.expected, theirs[0], self._generator)
            _keep(kept, 0, theirs)
            found = self._candidate_calls(self._seed(name, "candidate", block))
            if isinstance(found, CheckResult):
                return found
            _keep(kept, 1, found)
        return kept

    def _seed(self, *labels: object) -> int:
        return self._reference.reference.seed(self._reference.case.name, "distribution", self._label, *labels)

    def _reference_calls(self, seed: int) -> list[list[torch.Tensor]]:
        """The outputs of calls after one seed, each number as a tensor."""
        seed_everything(seed)
        with torch.no_grad():
            results = [leaves_after(self._model, tensors.clone(self._trial.args), self._trial.written) for _ in range(CALLS)]
        return [[_as_tensor(leaf) for leaf in result] for result in results]

    def _candidate_calls(self, seed: int) -> list[list[torch.Tensor]] | CheckResult:
        """The outputs of calls after one seed."""
        calls = []
        for call in range(CALLS):
            evidence = self._session.evidence(self._trial, seed=seed if call == 0 else None)
            failure = self._run_checks(evidence)
            if failure is not None:
                return failure
            calls.append(_outputs_of(evidence))
        return calls

    def _varying(self, kept: list[_Kept]) -> list[twosample.Output] | CheckResult:
        """Compare what does not vary; give the samples of what does."""
        outputs = []
        for index, (leaf, output) in enumerate(zip(self._trial.expected, kept, strict=True)):
            # A scalar of a call is held to the tolerance of its own kind.
            atol, rtol = self._reference.tolerance.of(str(leaf.spec.get("dtype", "")))
            low, high = output.low[0].double(), output.high[0].double()
            candidate_low, candidate_high = output.low[1].double(), output.high[1].double()
            centre = (low + high) / 2
            allowed = atol * min(1.0, rms(centre)) + rtol * centre.abs()
            fixed = (high - low <= 2 * allowed) | (low == high)
            within = (candidate_low >= low - allowed) & (candidate_high <= high + allowed)
            wrong = fixed & ~within & ~((low == candidate_low) & (high == candidate_high))
            if bool(wrong.any()):
                at = int(wrong.reshape(-1).nonzero()[0])
                got, want = candidate_low.reshape(-1)[at].item(), low.reshape(-1)[at].item()
                words = f"{output.path}: {int(wrong.sum())} of {wrong.numel()} elements differ, which no draw changes; first {got:.7g} against {want:.7g}"
                return failed("values", words)
            if bool(fixed.all()):
                continue
            steady = _grid(fixed, output)
            reference, candidate = (_stack(output.values[side], steady) for side in (0, 1))
            outputs.append(twosample.Output(path=leaf.path, reference=reference, candidate=candidate, rows=len(kept[index].rows)))
        return outputs

    def _repeat_seeds(self) -> CheckResult | None:
        """The same seed again: whoever draws from the seeded generators draws the same again."""
        for block in range(_REPEATED_SEEDS):
            seed = self._seed("repeated", block)
            runs = []
            for _ in range(2):
                found = self._candidate_calls(seed)
                if isinstance(found, CheckResult):
                    return found
                runs.append(found)
            for one, other in zip(*runs, strict=True):
                for leaf, a, b in zip(self._trial.expected, one, other, strict=True):
                    atol, rtol = self._reference.tolerance.of(str(leaf.spec.get("dtype", "")))
                    near = torch.isclose(a.double(), b.double(), rtol=rtol, atol=atol * min(1.0, rms(a.double())), equal_nan=True)
                    if not bool(near.all()):
                        count = int((~near).sum())
                        return failed(
                            _CHECK, f"{leaf.path}: {count} of {near.numel()} elements differ between two calls under one seed: it ignores the seed"
                        )
        return None


Drawn = tuple["list[Any]", "list[torch.Tensor]"]


class TimedDraws:
    """Outputs of timed calls, chosen at random among all that are given, and whether they are drawn as the reference draws."""

    def __init__(self, names: list[str], written: list[int]) -> None:
        self._names = names
        self._written = written
        self._random = random.Random(secrets.randbits(64))  # noqa: S311 - which calls are kept, not a key
        self._kept: list[tuple[Drawn, ...]] = []
        self._given = 0
        self._room = 0

    def keep(self, *calls: Drawn) -> None:
        """Be given one call, or two that were timed together: inputs, and what came of them."""
        if not self._given:
            n_bytes = sum(tensor.numel() * tensor.element_size() for args, outputs in calls for tensor in [*tensors.tensors_in(args), *outputs])
            self._room = max(TIMED_LEAST, min(TIMED_CALLS // len(calls), _TIMED_BYTES // max(n_bytes, 1)))
        self._given += 1
        place = len(self._kept) if len(self._kept) < self._room else self._random.randrange(self._given)
        if place < self._room:
            kept = tuple((tensors.clone(args), [output.clone() for output in outputs]) for args, outputs in calls)
            self._kept[place : place + 1] = [kept]

    def _pairs(self) -> list[tuple[Drawn, Drawn]]:
        """Calls that may not have used one another's draws: those that were timed together, or else each with the next."""
        alone = [kept[0] for kept in self._kept if len(kept) == 1]
        together = [(kept[0], kept[1]) for kept in self._kept if len(kept) > 1]
        return [*together, *zip(alone[::2], alone[1::2], strict=False)]

    def problem(self, model: Any, tolerance: Tolerance) -> str:
        """Say what is wrong with the outputs, if anything is.

        Each is ranked among the reference's by how far it lies from their mean, and every two of them by how alike
        their draws are: noise left out, doubled or used again stands at an end of the ranks nearly always.
        """
        extremes = 0
        drawn: list[torch.Tensor] = []
        for args, outputs in itertools.chain.from_iterable(self._pairs()):
            theirs = [self._reference(model, args) for _ in range(_TIMED_REFERENCES)]
            standard = []
            for index, output in enumerate(outputs):
                among = torch.stack([_as_tensor(output).double(), *(leaves[index].double() for leaves in theirs)]).reshape(len(theirs) + 1, -1)
                atol, rtol = tolerance.of(tensors.dtype_name(output.dtype))
                allowed = 2 * (atol * min(1.0, rms(among[1:])) + rtol * among[1].abs())
                fixed = among[1:].amax(dim=0) - among[1:].amin(dim=0) <= allowed
                off = (among[0] - among[1]).abs() > allowed
                if bool((fixed & off).any()):
                    return f"{self._names[index]} of a timed call: {int((fixed & off).sum())} elements differ that no draw changes"
                scaled = (among - among.mean(dim=0)) / among.std(dim=0).clamp_min(1e-300)
                standard.append(torch.where(fixed, 0.0, scaled.nan_to_num(0.0, 6.0, -6.0).clamp(-6, 6)))
            drawn.append(torch.cat(standard, dim=1))
            sizes = drawn[-1].square().mean(dim=1)
            extremes += bool((sizes[0] > sizes[1:]).all() or (sizes[0] < sizes[1:]).all())
        # A right one is the largest or the smallest of 20 in a tenth of the calls, and the largest in a twentieth.
        if extremes >= _too_many(len(drawn), 2 / (_TIMED_REFERENCES + 1)):
            return f"{extremes} of {len(drawn)} timed calls drew less, or more, than any of {_TIMED_REFERENCES} calls of the reference"
        pairs = [(one * other).mean(dim=1).abs() for one, other in zip(drawn[::2], drawn[1::2], strict=False) if one.shape == other.shape]
        alike = sum(bool((pair[0] > pair[1:]).all()) for pair in pairs)
        if alike >= _too_many(len(pairs), 1 / (_TIMED_REFERENCES + 1)):
            return f"timed calls used one another's draws again: {alike} of {len(pairs)} pairs"
        return ""

    def _reference(self, model: Any, args: list[Any]) -> list[torch.Tensor]:
        seed_everything(secrets.randbits(62))
        with torch.no_grad():
            return [_as_tensor(leaf) for leaf in tensors.tensors_in(leaves_after(model, tensors.clone(args), self._written))]


def _too_many(total: int, chance: float) -> int:
    """The least number of hits, each of this chance, that a right candidate has as seldom as `_TIMED_FALSE_ALARMS` says."""
    tail, hits = 0.0, total + 1
    while hits and tail + (term := math.comb(total, hits - 1) * chance ** (hits - 1) * (1 - chance) ** (total - hits + 1)) <= _TIMED_FALSE_ALARMS:
        tail += term
        hits -= 1
    return hits


def _as_tensor(leaf: Any) -> torch.Tensor:
    if isinstance(leaf, torch.Tensor):
        tensor = leaf.detach()
        # Neither complex numbers nor booleans have a smaller and a larger one.
        return torch.view_as_real(tensor) if tensor.is_complex() else tensor.to(torch.uint8) if tensor.dtype == torch.bool else tensor
    return torch.tensor(float(leaf) if isinstance(leaf, (int, float)) else 0.0, dtype=torch.float64)


def _outputs_of(evidence: Evidence) -> list[torch.Tensor]:
    """The outputs of a call that passed the checks of structure, shape and dtype."""
    specs = [*(spec for _, spec in tensors.leaves(evidence.tree)), *(leaf.spec for leaf in evidence.expected if leaf.input is not None)]
    outputs = []
    for spec, actual in zip(specs, evidence.actual, strict=True):
        outputs.append(_as_tensor(tensors.scalar(spec) if actual is None else actual))
    return outputs


def _places(expected: list[Leaf], first: list[torch.Tensor], generator: torch.Generator) -> list[_Kept]:
    """Choose which rows and columns of each output are kept: outputs of equally many rows share theirs.

    The first and the last of both are always among them: what a kernel leaves out is there.
    """
    grids = [(tensor.shape[0], tensor[0].numel()) if tensor.dim() and tensor.shape[0] else (1, tensor.numel()) for tensor in first]
    taken: dict[int, int] = {}
    for rows, columns in grids:
        taken[rows] = min(taken.get(rows, rows), max(1, KEPT_ELEMENTS // max(1, min(columns, 64))))
    chosen = {rows: _some(rows, count, generator) for rows, count in taken.items()}
    return [
        _Kept(
            path=leaf.path,
            shape=tensor.shape,
            rows=chosen[rows],
            columns=_some(columns, KEPT_ELEMENTS // len(chosen[rows]), generator),
            low=[],
            high=[],
            values=([], []),
        )
        for leaf, tensor, (rows, columns) in zip(expected, first, grids, strict=True)
    ]


def _some(total: int, count: int, generator: torch.Generator) -> torch.Tensor:
    """Indices below `total`: all, or so many at random with both ends among them; at least one."""
    if total <= count:
        return torch.arange(max(total, 1)) if total else torch.zeros(1, dtype=torch.long)
    ends = torch.tensor(sorted({0, total - 1}))
    return torch.cat([ends, torch.randperm(total, generator=generator)[: max(0, count - 2)]]).unique()


def _grid(tensor: torch.Tensor, kept: _Kept) -> torch.Tensor:
    """The rows and columns of a tensor that are kept, flat."""
    rows = tensor.reshape(tensor.shape[0], -1) if tensor.dim() and tensor.shape[0] else tensor.reshape(1, -1)
    if not rows.numel():
        return torch.zeros(1)
    return rows[kept.rows.to(rows.device)][:, kept.columns.to(rows.device)].reshape(-1).cpu()


def _keep(kept: list[_Kept], side: int, calls: list[list[torch.Tensor]]) -> None:
    """Add the calls of one seed to what is kept of a side: 0 for the reference, 1 for the candidate."""
    for index, output in enumerate(kept):
        stacked = []
        for leaves in calls:
            tensor = leaves[index]
            stacked.append(_grid(tensor, output).double())
            if len(output.low) <= side:
                output.low.append(tensor.clone())
                output.high.append(tensor.clone())
            else:
                torch.minimum(output.low[side], tensor, out=output.low[side])
                torch.maximum(output.high[side], tensor, out=output.high[side])
        output.values[side].append(torch.stack(stacked))


def _stack(blocks: list[torch.Tensor], steady: torch.Tensor) -> torch.Tensor:
    """[seeds, calls, elements], with what does not vary set to 0."""
    return torch.where(steady.bool(), 0.0, torch.stack(blocks))
