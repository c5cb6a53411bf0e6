"""A conversation of the judge's with a process that holds a model: one peer, one case at a time."""

from __future__ import annotations

import contextlib
import itertools
import random
import secrets
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import torch

from kbench.claims import ITEMS_LIMIT, NAME_LIMIT, TEXT_LIMIT, Claims, readable
from kbench.protocol import Channel, Closed, ProtocolError
from kbench.records import CaseVerdict, CheckResult, Reason, Status, exploit
from kbench.worker import accuracy, distribution, invariants, memory, tensors, variants
from kbench.worker.checks import CHECKS, REASONS, state
from kbench.worker.checks.results import failed
from kbench.worker.cuda_on_cpu import faults
from kbench.worker.evidence import Evidence
from kbench.worker.reference import CaseReference, ReferenceFault, Trial
from kbench.worker.seeding import generator_state, seed_everything

# malloc's fill for the trials in turn; each makes floats of every kind huge or tiny, never plausible.
_FILLS = (0x01, 0x80, 0x55)
# What lies around inputs in the calls in turn.
_POISONS = (memory.POISON_BYTE, *memory.POISON_BYTES)
# The last trial is repeated at least and at most so often, and for so long in between.
_REPEATS = (2, 30)
_REPEAT_S = 0.03
# Inputs start somewhere in the first pages, elsewhere in every trial.
_SHIFT_BYTES = 64 * 1024
# Of what a candidate says of its own file and line.
_PLACE_CHARACTERS = 120
# Weights that are named in a detail.
_NAMED_WEIGHTS = 3


class CandidateGone(Exception):
    """The candidate's process ended or hung up in the middle of a request; `stage` names which."""

    def __init__(self, stage: str) -> None:
        super().__init__(f"its process ended during {stage}")
        self.stage = stage


class CandidateFault(Exception):
    """The candidate failed a request: the reason and the words for the record."""

    def __init__(self, reason: str, detail: str, *, log: str = "", status: Status = Status.FAIL) -> None:
        super().__init__(detail)
        self.status = status
        self.reason = reason
        self.detail = detail
        self.log = log


class Peer:
    """A process that holds a model, seen from the judge."""

    def __init__(self, fd: int, tell: Callable[[str], None], *, cuda_on_cpu: bool = False) -> None:
        self.channel = Channel(socket.socket(fileno=fd))
        self.sandbox = ""
        self.pid = 0
        self._tell = tell
        self._cuda_on_cpu = cuda_on_cpu

    def ask(self, stage: str, op: str, *, fds: list[int] | None = None, **arguments: Any) -> Claims:
        """Send one request and wait for its answer; the parent's deadline ends a peer that never answers.

        Raises:
            CandidateGone: the process ended.
            CandidateFault: it answered that it failed, or not with a message; so does every field that is read of one.
        """
        return self.finish(self.begin(stage, op, fds=fds, **arguments), stage)

    def begin(self, stage: str, op: str, *, fds: list[int] | None = None, **arguments: Any) -> str:
        """Send one request; what `finish` needs to know its answer by.

        Raises:
            CandidateGone: the process ended.
        """
        self._tell(stage)
        # Nobody can answer a request before it was made.
        number = secrets.token_hex(8)
        try:
            self.channel.send({"op": op, "id": number, **arguments}, fds or [])
        except Closed:
            raise CandidateGone(stage) from None
        return number

    def finish(self, number: str, stage: str) -> Claims:
        """Wait for the answer to a request that was begun; see `ask`."""
        try:
            answer = Claims(self.channel.receive(), forged)
        except Closed:
            raise CandidateGone(stage) from None
        except ProtocolError as error:
            raise forged(str(error)) from None
        if answer.text("to") != number:
            raise CandidateFault(exploit("forged_message"), "its process sent an answer that nobody had asked for")
        if not answer.flag("ok"):
            raise _fault(stage, answer, cuda_on_cpu=self._cuda_on_cpu)
        return answer

    def greet(self) -> None:
        """Wait until the process has confined itself and listens."""
        try:
            hello = self.channel.receive()
            # It was sent before anything of the candidate's was loaded.
            self.sandbox, self.pid = str(hello.get("sandbox", "")), int(hello["pid"])
        except Closed:
            raise CandidateGone("start") from None


def forged(words: str) -> CandidateFault:
    """What is wrong with a process that says what no honest one does."""
    return CandidateFault(exploit("forged_message"), f"its process wrote what is no answer: {words}")


def _fault(stage: str, answer: Claims, *, cuda_on_cpu: bool) -> CandidateFault:
    message, trace = answer.text("message"), answer.text("trace")
    said = f"{answer.text('type')}: {message}".strip()
    placed = f"{_place(answer)}{said}"
    if answer.flag("memory"):
        return CandidateFault(Reason.MEMORY, f"out of memory during {stage}: {placed}", log=trace)
    # Nowhere else is there anything that could not be supported.
    if answer.text("stage") == "unsupported" and cuda_on_cpu:
        return CandidateFault("", f"cannot run on the CPU: {message}", status=Status.SKIP)
    if (reason := answer.text("reason")) in faults.REASONS:
        return CandidateFault(reason, message, log=trace)
    reason = Reason.BUILD if answer.text("stage") == "build" else Reason.LOAD if stage == "load" else Reason.RUN
    # What the stage has besides the reason, which is said before it.
    where = stage.removeprefix(reason).strip()
    detail = said if reason == Reason.BUILD else ": ".join(filter(None, [where, placed]))
    return CandidateFault(reason, detail, log=answer.text("log") or trace)


def _place(answer: Claims) -> str:
    """Where in its own file an exception of the candidate's came from, with a colon; a claim."""
    place = answer.text("place")
    return f"{place}: " if place.isprintable() and 0 < len(place) <= _PLACE_CHARACTERS else ""


class CaseSession:
    """One peer in one case: its instance of the model and the memory shared with it."""

    def __init__(self, peer: Peer, reference: CaseReference, device: torch.device, *, baseline: bool = False) -> None:
        self.device = device
        self.peer = peer
        self.reference = reference
        self.baseline = baseline
        self.arenas: dict[str, memory.Arena] = {}
        self.weights_problem = ""
        self.weights_guess = ""
        self.notes: list[str] = []
        self._manifest: list[tuple[str, str, list[int]]] = []
        # The peer's weights by the reference's names, where it holds the same ones in another order.
        self._same: dict[str, str] = {}
        self._accuracy: dict[str, Any] = {}
        self._variant = ""
        # The candidate's weights that the reference has, too: a workspace or a counter of its own may change.
        self._watched: set[str] = set()
        # Of the reference's weights: what the peer was given last of those that are matched, by what name it has each, and which may change.
        self._given: dict[str, torch.Tensor] = {}
        self._matched: dict[str, str] = {}
        self._may_change: set[str] = set()
        # The calls of `_repeat`, in order.
        self._repeated: list[Trial] = []
        self._calls = 0
        # How inputs are placed in their memory.
        self.layout = tensors.Layout
        self._random = random.Random(secrets.randbits(64))  # noqa: S311 - addresses, not keys

    def arena(self, name: str, n_bytes: int) -> memory.Arena:
        """The arena of that name with room for `n_bytes`; the peer has opened it."""
        arena = self.arenas.get(name)
        if arena is None or arena.n_bytes < n_bytes:
            outgrown = arena
            arena = self.arenas[name] = memory.Arena(n_bytes, self.device)
            message, fds = arena.message()
            self.peer.ask(self._stage("run"), "arena", fds=fds, name=name, arena=message)
            # Only now, when the peer has let go of it.
            if outgrown is not None:
                outgrown.close()
        return arena

    def page(self, name: str) -> memory.Arena:
        """A page of host memory of that name, whatever the device; the peer has opened it."""
        if name not in self.arenas:
            arena = self.arenas[name] = memory.Arena(0, torch.device("cpu"))
            message, fds = arena.message()
            self.peer.ask(self._stage("run"), "arena", fds=fds, name=name, arena=message)
        return self.arenas[name]

    def close(self) -> None:
        """Give the shared memory back; the peer forgets the case."""
        try:
            self.peer.ask(self._stage("run"), "forget")
        except (CandidateGone, CandidateFault):
            pass
        for arena in self.arenas.values():
            arena.close()
        self.arenas.clear()

    def construct(self) -> None:
        """Have the peer build its model from the reference's seed, and give it the reference's weights."""
        answer = self.peer.ask(self._stage("construct"), "construct", init=self.reference.init_spec, seed=self.reference.init_seed)
        self._manifest = answer.parsed("manifest", _parse_manifest)
        matched, how = self._match(self.reference.weights)
        self._watched = {name[:NAME_LIMIT] for name in [*matched.values(), *(name for name, _ in self.reference.weights)]}
        if how == "unmatched":
            theirs = ", ".join(f"{name} {shape}" for name, _, shape in self._manifest) or "none"
            ours = ", ".join(f"{name} {list(tensor.shape)}" for name, tensor in self.reference.weights) or "none"
            self.weights_problem = f"weights cannot be matched: the reference has {ours}; the candidate has {theirs}"
        differed = self._give_weights(self.reference.weights, matched, guessed=how in ("order", "shape"))
        if differed:
            self.notes.append(f"weights copied from the reference, matched by {how}: {', '.join(differed)}")
        renamed = [f"{mine} → {theirs[:80]}" for mine, theirs in matched.items() if mine != theirs]
        if differed and renamed:
            more = ", …" if len(renamed) > _NAMED_WEIGHTS else ""
            self.weights_guess = f"weights were matched by {how}, not by name: {', '.join(renamed[:_NAMED_WEIGHTS])}{more}"

    def _match(self, own: list[tuple[str, torch.Tensor]]) -> tuple[dict[str, str], str]:
        if self._same and set(self._same.values()) <= {name for name, *_ in self._manifest}:
            return self._same, "value"
        return match_weights([(name, tensors.dtype_name(tensor.dtype), list(tensor.shape)) for name, tensor in own], self._manifest)

    def _give_weights(self, own: list[tuple[str, torch.Tensor]], matched: dict[str, str], *, guessed: bool = False) -> list[str]:
        """Have the peer take over the weights that are matched; the first names of those that were others.

        Where the match is `guessed`, and the peer has the same weights in another order, it keeps them and is believed
        which is which: with others in their place its outputs are wrong.
        """
        if not matched:
            return []
        layout = tensors.Layout()
        by_name = dict(own)
        specs = {mine: tensors.describe(by_name[mine].contiguous(), place=layout.place) for mine in matched}
        arena = self.arena("weights", layout.end_bytes)
        for mine, spec in specs.items():
            tensors.view_of(arena.memory, spec).copy_(by_name[mine])
        _settle(self.device)
        pairs = [[theirs, specs[mine]] for mine, theirs in matched.items()]
        answer = self.peer.ask(self._stage("weights"), "weights", map=pairs, guessed=guessed)
        same = answer.texts("same", len(matched) + 1, TEXT_LIMIT)
        if guessed and sorted(same) == sorted(matched.values()):
            self._same = dict(zip(matched, same, strict=True))
        self._given, self._matched = {mine: by_name[mine] for mine in matched}, self._same or matched
        return [name[:80] for name in answer.texts("differed", 8)]

    def verify(self) -> CaseVerdict:
        """Every trial of the case, until one fails."""
        self.construct()
        checks: dict[str, CheckResult] = {weakness.name: weakness for weakness in self.reference.weaknesses}
        errors: list[tuple[float | None, float | None]] = []
        notes = [*self.reference.warnings, *self.notes]
        done = 0
        last: list[Trial] = []
        for trial in self.reference.trials():
            evidence = self.evidence(trial)
            failure = _run_checks(evidence, checks, skipped=self._skipped(trial))
            errors.append((evidence.max_abs_error, evidence.max_rel_error))
            notes += unsaid(evidence.notes, notes)
            done += 1
            if done == 1 and not self.baseline:
                failure = self._measure_accuracy(trial, evidence, failure, checks, notes)
            if failure is not None:
                self._spare(failure, evidence, trial)
                return self._verdict(self._with_hint(failure, trial), checks, notes, errors, done)
            last = [*last[-1:], trial]
        failure = self._compare_weights(checks, notes, last[-1]) or self._repeat(last, checks) or self._judge_draws(last, checks)
        failure = failure or self._try_variants(checks, notes) or self._hold_result(last, checks) or self._compare_weights(checks, notes)
        notes += [warning for warning in self.reference.warnings if warning not in notes]
        return self._verdict(failure, checks, notes, errors, done)

    def _compare_weights(self, checks: dict[str, CheckResult], notes: list[str], last: Trial | None = None) -> CheckResult | None:
        """Compare the peer's weights with what they have to be, which versions alone do not tell.

        After the `last` of the trials, which the reference met in the same order, those that it changes are compared with
        its own, too; later, who was called more often has others.
        """
        left = {} if last is None else last.left
        if left and not self._matched:
            notes.append(f"the reference changes {', '.join(list(left)[:_NAMED_WEIGHTS])}: the candidate has nothing that matches, which was not compared")
        if self.baseline or not self._given or (last is None and self.reference.stateful):
            return None
        if last is not None and self._by_distribution(last):
            left = {}
        layout = tensors.Layout()
        places = {mine: tensors.describe(given.contiguous(), place=layout.place) for mine, given in self._given.items()}
        memory_of = self.arena("weights", layout.end_bytes).memory
        answer = self.peer.ask(self._stage("run"), "left_weights", map=[[self._matched[mine], place] for mine, place in places.items()])
        copied = iter(answer.flags("copied"))
        for mine, place in places.items():
            actual, given, name = tensors.view_of(memory_of, place) if next(copied, False) else None, self._given[mine], self._matched[mine][:NAME_LIMIT]
            if mine in left and actual is not None and state.is_count(left[mine]):
                # Who computes a layer's statistics by other means seldom counts its calls; where a count matters, outputs tell.
                notes += [f"the reference counts in {name}, the candidate otherwise"] if not torch.equal(actual, left[mine]) else []
                continue
            if mine in left:
                problem = state.follows(name, actual, left[mine], given, self.reference.tolerance)
            else:
                problem = "" if mine in self._may_change else state.kept(name, actual, given)
            if problem:
                checks["state"] = failed("state", "; ".join(filter(None, [problem, self.weights_guess])))
                return checks["state"]
        return None

    def _with_hint(self, failure: CheckResult, trial: Trial) -> CheckResult:
        if failure.name != "values" or not trial.draws or self.reference.distribution_cases:
            return failure
        hint = '`draws = "distribution"` for the task judges a candidate with draws of its own'
        return replace(failure, detail=f"{failure.detail}; the reference draws: {hint}")

    def _spare(self, failure: CheckResult, evidence: Evidence, trial: Trial) -> None:
        """Judge nobody by draws that a device makes in another way than this CPU, where CUDA runs on it.

        Raises:
            CandidateFault: the outputs differ, and so may the draws: a skip.
        """
        reference = self.reference.reference
        if not reference.cuda_on_cpu or failure.name not in ("values", "nan") or evidence.generators.get("cpu") == trial.generators["cpu"]:
            return
        seed_everything(trial.seed)
        if generator_state(self.device)["cpu"] != trial.generators["cpu"]:
            detail = "the reference draws (dropout, integers, ...) in a way that is not drawn as on a device here, and the candidate in another"
            raise CandidateFault("", f"cannot be judged on the CPU: {detail}", status=Status.SKIP)

    def _measure_accuracy(
        self, trial: Trial, evidence: Evidence, failure: CheckResult | None, checks: dict[str, CheckResult], notes: list[str]
    ) -> CheckResult | None:
        """Measure errors against float64, and say which arithmetic they show; other than float32, where the task asks for it, is a failure."""
        if failure is not None and failure.name != "values" or self._by_distribution(trial):
            return failure
        started = time.monotonic()
        found = accuracy.measure(evidence, trial.oracle.rounded)
        if found is None:
            return failure
        self._accuracy = found.plain()
        told = f"its errors are those of {found.arithmetic}, not of float32"
        shows_another = found.arithmetic != "float32"
        if failure is not None:
            is_arithmetic = shows_another and found.arithmetic != accuracy.PLAINLY_WRONG
            checks[failure.name] = replace(failure, detail=f"{failure.detail}; {told}") if is_arithmetic else failure
            return checks[failure.name]
        is_refused = shows_another and self.reference.strict_float32
        checks["precision"] = CheckResult(
            name="precision",
            status=Status.FAIL if is_refused else Status.PASS,
            detail=f"{told}: {accuracy.words(found)}" if shows_another else accuracy.words(found),
            seconds=time.monotonic() - started,
        )
        if shows_another and not is_refused:
            notes.append(told)
        return checks["precision"] if is_refused else None

    def _try_variants(self, checks: dict[str, CheckResult], notes: list[str]) -> CheckResult | None:
        """Try inputs and weights beyond the given ones; a failure names the variant.

        Where the reference itself is not to be relied upon there, what the candidate gives does not count.
        """
        started = time.monotonic()
        tried = []
        for index, trial in enumerate(() if self.baseline or not self.reference.beyond_inputs else self.reference.variants()):
            if trial.weights is not None:
                matched, how = self._match(trial.weights)
                if how == "unmatched":
                    notes.append(f"variant `{trial.variant}` was not tried: the candidate has no weights that match the reference's")
                    continue
                self._give_weights(trial.weights, matched)
            self._variant = trial.variant
            found = problem = None
            try:
                evidence = self.evidence(trial)
                found = _run_checks(evidence, {}, skipped=self._skipped(trial))
                if found is not None:
                    found = self._unless_aged(found, evidence, itertools.islice(self.reference.variants(), index + 1))
            except CandidateFault as fault:
                problem = fault
            if self.reference.stateful:
                break
            if (found or problem) and not self.reference.is_sound(trial):
                notes.append(f"variant `{trial.variant}` left out: the reference is not steady there")
                continue
            if problem is not None:
                raise problem
            if found is not None:
                meaning = variants.MEANING[trial.variant]
                remedy = "" if trial.weights is None else "what is derived from parameters must be derived anew when their `_version` changes; "
                words = f'variant `{trial.variant}` ({meaning}): {found.detail}; {remedy}`domain = "as_given"` for the task leaves variants out'
                checks[found.name] = replace(found, detail=words)
                return checks[found.name]
            tried.append(trial.variant)
        self._variant = ""
        if tried:
            kept = invariants.words(self.reference.facts)
            detail = ", ".join(tried) + (f"; kept as in every trial: {kept}" if kept else "")
            checks["variants"] = CheckResult(name="variants", status=Status.PASS, detail=detail, seconds=time.monotonic() - started)
        return None

    def _judge_draws(self, trials: list[Trial], checks: dict[str, CheckResult]) -> CheckResult | None:
        """Hold the distribution of the outputs against the reference's, where the task asks for that."""
        if not self._by_distribution(trials[0]) or self.baseline:
            return None
        skipped = self._skipped(trials[0])
        result = distribution.check(self, trials, self.reference.distribution_cases, lambda evidence: _run_checks(evidence, {}, skipped=skipped))
        checks[result.name] = result
        return result if result.status is Status.FAIL else None

    def _by_distribution(self, trial: Trial) -> bool:
        return bool(trial.draws and self.reference.distribution_cases)

    def _repeat(self, trials: list[Trial], checks: dict[str, CheckResult]) -> CheckResult | None:
        """Make the calls of two trials again and again, in turn and at one address.

        A race shows in some calls only; a result remembered by address is that of the other inputs. A
        difference in the last bits is no offence (atomic sums have it), one beyond the tolerance is.
        """
        shift = self._random.randrange(_SHIFT_BYTES)
        started = time.monotonic()
        calls = 0
        while not self.reference.stateful and calls < _REPEATS[1]:
            if calls >= _REPEATS[0] and time.monotonic() - started > _REPEAT_S:
                break
            calls += 1
            trial = trials[calls % len(trials)]
            self._repeated.append(trial)
            evidence = self.evidence(trial, shift=shift)
            failure = _run_checks(evidence, {}, skipped=self._skipped(trial))
            if failure is not None and (failure := self._unless_aged(failure, evidence)) is not None:
                detail = f"right at first, wrong in repetition {calls}: {failure.detail}"
                checks["determinism"] = CheckResult(name="determinism", status=Status.FAIL, detail=detail)
                return checks["determinism"]
        spent = time.monotonic() - started
        checks["determinism"] = CheckResult(name="determinism", status=Status.PASS, detail=f"{calls} repetitions", seconds=spent)
        return None

    def _hold_result(self, trials: list[Trial], checks: dict[str, CheckResult]) -> CheckResult | None:
        """Hold the result of a call while another is made: whoever keeps one is not to find the next one in it."""
        if self.baseline:
            return None
        first, second = trials[0], trials[-1]
        if second is first:
            second = replace(first, args=self.reference.reference.inputs(self.reference.case, "held"))
        before = self.evidence(first, hold=True)
        self.evidence(second)
        places, outputs = self._lay_out_outputs(first)
        copied = self.peer.ask(self._stage("run"), "held", outputs=places).flags("copied")
        leaves = [(leaf, actual) for leaf, actual in zip(first.expected, before.actual, strict=True) if leaf.tensor is not None]
        changed = [
            index
            for index, ((_, was), place, is_copied) in enumerate(zip(leaves, places, copied, strict=False))
            if is_copied and was is not None and not _has_bits_of(tensors.view_of(outputs.memory, place), was)
        ]
        if not changed or self.reference.overwritten(first.args, second.args, first.seed).issuperset(changed):
            return None
        path = leaves[changed[0]][0].path
        checks["mutation"] = failed("mutation", f"{path}: the result of a call is overwritten by the next: return new memory")
        return checks["mutation"]

    def _unless_aged(self, failure: CheckResult, evidence: Evidence, variants_so_far: Iterable[Trial] = ()) -> CheckResult | None:
        """The failure of the last call, unless the reference itself answers like that once it has met all that the candidate has.

        A fresh reference is no measure of what has been called before, where state builds up slowly or all at once.
        """
        trials = itertools.chain(self.reference.trials(), self._repeated, variants_so_far)
        try:
            aged = self.reference.aged(trials)
        except ReferenceFault:
            return failure
        again = replace(
            evidence,
            expected=aged.expected,
            expected_tree=aged.tree,
            expected_generators=aged.generators,
            oracle=aged.oracle,
            state_changed=self._not_to_change(evidence.state_changed, aged),
        )
        if _run_checks(again, {}, skipped=self._skipped(aged)) is not None:
            return failure
        if not self.reference.agree(aged.expected, evidence.expected):
            self.reference.found_stateful()
        return None

    def _skipped(self, trial: Trial) -> frozenset[str]:
        """A baseline is torch's own code: it may rewrap torch's functions and draw by a generator of its own."""
        by_its_own = frozenset({"values", "draws"}) if self._by_distribution(trial) else frozenset()
        if not self.baseline:
            return by_its_own
        return by_its_own | frozenset({"patched", "draws", "values"} if trial.draws else {"patched", "draws"})

    def _verdict(
        self,
        failure: CheckResult | None,
        checks: dict[str, CheckResult],
        notes: list[str],
        errors: list[tuple[float | None, float | None]],
        trials: int,
    ) -> CaseVerdict:
        reason, detail = "", ""
        if failure is not None:
            reason, detail = REASONS.get(failure.name, failure.name), failure.detail
            if self.weights_problem and reason in ("values", "nan"):
                reason, detail = Reason.WEIGHTS, f"{self.weights_problem}; {detail}"
            elif self.weights_guess and reason in ("values", "nan"):
                detail = f"{detail}; {self.weights_guess}"
        absolute = [error for error, _ in errors if error is not None]
        relative = [error for _, error in errors if error is not None]
        return CaseVerdict(
            case=self.reference.case.name,
            status=Status.PASS if failure is None else Status.FAIL,
            reason=reason,
            detail=detail,
            checks=tuple(checks.values()),
            warnings=tuple(notes),
            max_abs_error=max(absolute, default=None),
            max_rel_error=max(relative, default=None),
            trials=trials,
            accuracy=self._accuracy,
        )

    def failure(self, trial: Trial, **how: Any) -> CheckResult | None:
        """The first check that fails in one call, if any does; `how` as for `evidence`."""
        return _run_checks(self.evidence(trial, **how), {}, skipped=self._skipped(trial))

    @contextlib.contextmanager
    def second_instance(self, weights: list[tuple[str, torch.Tensor]]) -> Iterator[None]:
        """Have the peer build a second instance of the model, with these weights, and answer by it meanwhile."""
        answer = self.peer.ask(self._stage("construct"), "another", init=self.reference.init_spec, seed=self.reference.init_seed)
        self._manifest = answer.parsed("manifest", _parse_manifest)
        self._give_weights(weights or self.reference.weights, self._match(weights or self.reference.weights)[0])
        yield
        self.peer.ask(self._stage("construct"), "swap")

    def evidence(self, trial: Trial, *, shift: int | None = None, rehearsal: list[Any] | None = None, **how: Any) -> Evidence:
        """Have the peer make one call, and gather what a check may look at.

        `shift` fixes the inputs' address; `rehearsal` are the inputs for a way that is rehearsed, those of the trial
        where they are no others of the same form; `how` goes with the request, see `candidate.Worker.forward`.
        """
        start = self._random.randrange(_SHIFT_BYTES) if shift is None else shift
        inputs, layout_end, staged, args = self._lay_out_inputs(trial, start, rehearsal)
        master = inputs.memory[staged : staged + layout_end].clone()
        places, outputs = self._lay_out_outputs(trial)
        returned = len(places) - len(trial.written)
        answer = self.peer.ask(
            self._stage("run"),
            "forward",
            **{
                "args": args,
                "staged": staged,
                "outputs": places[:returned],
                "written": [[number, place] for number, place in zip(trial.written, places[returned:], strict=True)],
                "seed": trial.seed,
                "fill": _FILLS[trial.index % len(_FILLS)],
                **how,
            },
        )
        return self._gather(trial, answer, inputs=inputs, end=layout_end, master=master, args=args, places=places, outputs=outputs)

    def _lay_out_inputs(self, trial: Trial, start: int, rehearsal: list[Any] | None) -> tuple[memory.Arena, int, int, tensors.Spec]:
        """Write the inputs of a trial; on a GPU, and after those of a rehearsal, behind the place where the candidate will see them."""
        layout = self.layout(start)
        args = tensors.describe(trial.args, place=layout.place, trusted=True)
        end = tensors.aligned(layout.end_bytes)
        staged = end if self.device.type == "cuda" or rehearsal is not None else 0
        inputs = self.arena("inputs", end + staged)
        inputs.poison(_POISONS[self._calls % len(_POISONS)])
        self._calls += 1
        tensors.write_tree(inputs.memory, args, trial.args, shift_bytes=staged)
        if rehearsal is not None:
            fits = tensors.describe(rehearsal, place=self.layout(start).place, trusted=True) == args
            tensors.write_tree(inputs.memory, args, rehearsal if fits else trial.args)
        _settle(self.device)
        return inputs, end, staged, args

    def _lay_out_outputs(self, trial: Trial) -> tuple[list[tensors.Spec], memory.Arena]:
        layout = tensors.Layout()
        places = [tensors.describe(leaf.tensor.contiguous(), place=layout.place) for leaf in trial.expected if leaf.tensor is not None]
        outputs = self.arena("outputs", layout.end_bytes)
        outputs.poison()
        _settle(self.device)
        return places, outputs

    def _gather(
        self,
        trial: Trial,
        answer: Claims,
        *,
        inputs: memory.Arena,
        end: int,
        master: torch.Tensor,
        args: tensors.Spec,
        places: list[tensors.Spec],
        outputs: memory.Arena,
    ) -> Evidence:
        # First of all a copy of what was written: nothing that comes later may count.
        snapshot = outputs.memory.clone()
        now = inputs.memory[:end].clone()
        given, left = iter(answer.flags("copied")), iter(answer.flags("left"))
        remaining = iter(places)
        actual: list[torch.Tensor | None] = []
        for leaf in trial.expected:
            if leaf.tensor is None:
                actual.append(None)
                continue
            place = next(remaining)
            actual.append(tensors.view_of(snapshot, place) if next(given if leaf.input is None else left, False) else None)
        changed, outside = _compare_inputs(now, master, args, trial)
        paths = [path for path, leaf in tensors.leaves(args, "input") if leaf["k"] == "tensor"]
        others = set(range(len(paths))) - set(trial.written)
        return Evidence(
            expected=trial.expected,
            expected_tree=trial.tree,
            tree=answer.parsed("tree", tensors.parse_tree),
            actual=actual,
            tolerance=self.reference.tolerance,
            is_variant=bool(trial.variant),
            oracle=trial.oracle,
            undecided=trial.undecided,
            inputs_changed=changed,
            inputs_reformed=[paths[int(number)] for number in answer.numbers("reformed") if number in others],
            written_outside=[*outside, *(f"past the end of output tensor {index:g}" for index in answer.numbers("past_end"))],
            expected_generators=trial.generators,
            generators=answer.named("generators"),
            state_changed=self._not_to_change(answer.texts("state_changed", ITEMS_LIMIT), trial),
            globals_changed=answer.texts("changed"),
            cuda_error=answer.text("cuda_error", 200),
        )

    def _not_to_change(self, names: list[str], trial: Trial) -> list[str]:
        """Of these weights of the peer's those that the reference has, and never was seen to change."""
        self._may_change |= trial.left.keys()
        allowed = {self._matched.get(mine, mine)[:NAME_LIMIT] for mine in self._may_change}
        return [name for name in names if name in self._watched and name not in allowed]

    def _stage(self, name: str) -> str:
        case = self.reference.case.name
        name = f"{name} of variant {self._variant}" if self._variant else name
        return name if case == "default" else f"{name} (case {case})"


def match_weights(reference: list[tuple[str, str, list[int]]], candidate: list[tuple[str, str, list[int]]]) -> tuple[dict[str, str], str]:
    """Pair the reference's weights with a candidate's: reference name -> candidate name, and by what rule.

    By name where the candidate has all names with their dtypes and shapes, whatever it has besides; else by order where the sequences of dtypes and
    shapes agree; else by shape where every shape occurs once on both sides; else `unmatched`.
    """
    if not reference or not candidate:
        return {}, "none" if not reference else "unmatched"
    known = {name: facts for name, *facts in candidate}
    if all(known.get(name) == facts for name, *facts in reference):
        return {name: name for name, *_ in reference}, "name"
    ours, theirs = [tuple([d, *s]) for _, d, s in reference], [tuple([d, *s]) for _, d, s in candidate]
    if ours == theirs:
        return {mine[0]: other[0] for mine, other in zip(reference, candidate, strict=True)}, "order"
    if sorted(map(str, ours)) == sorted(map(str, theirs)) and len(set(ours)) == len(ours):
        by_shape = {tuple([d, *s]): name for name, d, s in candidate}
        return {name: by_shape[(d, *s)] for name, d, s in reference}, "shape"
    return {}, "unmatched"


def unsaid(notes: list[str], said: list[str]) -> list[str]:
    """Those notes that were not said yet; what differs in figures in parentheses alone is the same note."""
    known = {note.partition(" (")[0] for note in said}
    return [note for note in notes if note.partition(" (")[0] not in known]


def _compare_inputs(now: torch.Tensor, master: torch.Tensor, args: tensors.Spec, trial: Trial) -> tuple[list[str], list[str]]:
    """Name the inputs that changed, and where memory around them did."""
    if torch.equal(now, master):
        return [], []
    changed = []
    exempt = now.clone()
    index = 0
    for path, leaf in tensors.leaves(args, "input"):
        if leaf["k"] != "tensor":
            continue
        n_bytes = tensors.span_elements(leaf["shape"], leaf["stride"]) * tensors.dtype_of(leaf["dtype"]).itemsize
        piece = slice(leaf["offset"], leaf["offset"] + n_bytes)
        if not torch.equal(now[piece], master[piece]) and index not in trial.written:
            changed.append(path)
        exempt[piece] = master[piece]
        index += 1
    if torch.equal(exempt, master):
        return changed, []
    where = int((exempt != master).nonzero()[0])
    return changed, [f"outside of its inputs, at byte {where} of their memory"]


def _run_checks(evidence: Evidence, results: dict[str, CheckResult], *, skipped: frozenset[str]) -> CheckResult | None:
    """Run the checks in order up to the first that fails; times add up over the trials."""
    for name, check in CHECKS.items():
        if name in skipped:
            continue
        started = time.perf_counter()
        result = check(evidence)
        before = results.get(name)
        spent = time.perf_counter() - started + (before.seconds if before else 0.0)
        detail = result.detail or (before.detail if before else "")
        results[name] = CheckResult(name=name, status=result.status, detail=detail, seconds=spent)
        if result.status is Status.FAIL:
            return results[name]
    return None


def _parse_manifest(claim: Any) -> list[tuple[str, str, list[int]]]:
    found = [(readable(name), tensors.dtype_name(tensors.dtype_of(dtype)), tensors.parse_sizes(shape)) for name, dtype, shape in claim]
    if len({name for name, *_ in found}) != len(found):
        raise ValueError("a name twice")
    return found


def _has_bits_of(one: torch.Tensor, other: torch.Tensor) -> bool:
    return bool(torch.equal(one.reshape(-1).view(torch.uint8), other.reshape(-1).view(torch.uint8)))


def _settle(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
