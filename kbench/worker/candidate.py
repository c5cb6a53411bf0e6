"""The process that holds one model, usually a candidate's, and does what the judge asks of it.

Everything it says after it loaded a candidate is a claim: the judge believes only the bytes that it
finds in its own memory and its own clock. It never sees an expected output, a seed to come or the
reference (a worker that runs the reference is another process, started in the same way).
"""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import os
import socket
import sys
import time
import traceback
import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch.utils import cpp_extension

from kbench.protocol import Channel, Closed, Message
from kbench.worker import confine, cudart, memory, sanitized, tensors, ways
from kbench.worker import globals as global_state
from kbench.worker.build import intercept
from kbench.worker.globals import GlobalState
from kbench.worker.seeding import generator_state, seed_everything
from kbench.worker.timing import gate, kernels, slots, steady
from kbench.worker.wraps import WRAPS

if TYPE_CHECKING:
    from kbench.worker.cuda_on_cpu.emulation import Emulation

_TEXT_LIMIT = 2000
# What a failing call may say of itself: the innermost frames are the candidate's.
_TRACE_LIMIT = 6000
# What is said to a candidate that asks for a file of its folder or of the two above it, `candidates/` and the root.
_ONE_FILE = "; a candidate is one file and reads no other of its tree: put into it what it needs, sources as text for load_inline"
_TREE_DEPTH = 3
# How torch's CPU allocator says it, in a plain RuntimeError.
_OUT_OF_MEMORY = ("not enough memory", "can't allocate memory", "Cannot allocate memory", "out of memory")
# A delay on the caller's stream before the inputs are there, longer than it takes the host to launch a call: at least
# and at most (1 and 4 ms on an H200), and in between twice what the last call took. A host took 5 to 20 us a launch. A
# rehearsed call is made once only, so that there it is longer than all its launches on a busy host (20 ms).
_DELAY_CYCLES = (2_000_000, 8_000_000)
_CYCLES_A_NS = 2
_LONG_DELAY_CYCLES = 40_000_000

# How much longer a launch may take while it is traced.
_TRACED_LAUNCH = 4

# Bound before a candidate can patch them.
_no_grad = torch.no_grad
_copy = torch.Tensor.copy_
_now_ns = time.perf_counter_ns
_fill = torch.Tensor.fill_
_detach = torch.Tensor.detach
# A model may have methods of its own by these names, which tell of none.
_named_parameters, _named_buffers = torch.nn.Module.named_parameters, torch.nn.Module.named_buffers


def prepare() -> None:
    """Do once, before the fork, what every candidate's process would do; no tensor operation is among it."""
    with contextlib.suppress(ImportError):
        # Loaded by its first use, which seeding is.
        importlib.import_module("numpy.random")
    global_state.prepare()
    confine.prepare()


def main(args: Mapping[str, Any], fds: list[int]) -> None:
    """Confine this process as far as it has to be, then serve the judge until it hangs up."""
    channel = Channel(socket.socket(fileno=fds[0]), accept_fds=True)
    build_socket = socket.socket(fileno=fds[1])
    os.environ["CUDA_VISIBLE_DEVICES"] = args["gpu"]
    sandbox = "trusted"
    if policy := args.get("confine"):
        sandbox = str(confine.confine(confine.Policy.from_json(policy)))
    else:
        confine.filter_calls()
    worker = Worker(args, build_socket)
    channel.send({"ok": True, "sandbox": sandbox, "pid": os.getpid()})
    Channel(build_socket.dup()).send({"op": "ready"})
    try:
        while True:
            request = channel.receive()
            channel.send({**worker.answer(request, channel.take_fds()), "to": request.get("id")})
    except Closed:
        os._exit(0)


class Worker:
    """The state of one such process: a module, an instance of its model, and the memory it shares."""

    def __init__(self, args: Mapping[str, Any], build_socket: socket.socket) -> None:
        self.args = args
        self.device = torch.device(args["device"])
        self.arenas: dict[str, torch.Tensor] = {}
        self.model: Any = None
        self.call: Any = None
        # The same, with the inputs that the reference writes into among what it gives.
        self.timed_call: Any = None
        self._aside: tuple[Any, Any] = (None, None)
        self._held: list[torch.Tensor] = []
        self.factory: Any = None
        self._file = ""
        self._ballast = memory.ballast()
        torch.set_num_threads(int(args["threads"]))
        self.globals = GlobalState()
        self.timer: slots.Timer | None = None
        self._delay_cycles = _DELAY_CYCLES[0]
        self.steady: steady.Steady | None = None
        self.emulation: Emulation | None = None
        self._build_socket = build_socket
        self._operations: dict[str, Callable[[Message, list[int]], Message]] = {
            "load": self.load,
            "arena": self.arena,
            "construct": self.construct,
            "another": self.another,
            "swap": self.swap,
            "weights": self.weights,
            "left_weights": self.left_weights,
            "forward": self.forward,
            "held": self.held,
            "prepare": self.prepare,
            "warm": lambda request, _: self._timer().warm(request),
            "wake": lambda request, _: self._timer().wake(request),
            "slot": lambda request, _: self._timer().slot(request),
            "burst": lambda request, _: self._timer().burst(request, gate.Gate(self.arenas["gate"])),
            "changes": lambda _request, _: {"changed": self.globals.changes()},
            "wall": lambda request, _: self._timer().wall(request),
            "deliver": lambda request, _: self._timer().deliver(request),
            "floor": lambda request, _: self._gpu_timer().floor(request),
            "memory": lambda request, _: self._gpu_timer().memory(request),
            "burn": lambda request, _: self._gpu_timer().burn(request),
            "chains": self.chains,
            "chain": self.chain,
            "kernels": self.kernels,
            "forget": self.forget,
        }
        if self.device.type == "cuda":
            cudart.begin(self.device)

    def answer(self, request: Message, fds: list[int]) -> Message:
        """Do one request; whatever it raises becomes the answer."""
        try:
            return {"ok": True, **self._operations[request["op"]](request, fds)}
        except BaseException as error:  # noqa: BLE001 - a candidate may raise anything at all, SystemExit too
            return failure(error, self._file)

    def load(self, request: Message, _fds: list[int]) -> Message:
        """Import the file from where it lies, in a namespace of its own; find its model class."""
        self._file = request["path"]
        if self.args["interpret"]:
            # Triton runs a kernel on CPU tensors by interpreting it, if this is there when it is imported.
            os.environ["TRITON_INTERPRET"] = "1"
        if self.args.get("lines"):
            sanitized.with_lines(cpp_extension)
        if self.args.get("cuda_on_cpu"):
            # Only here: it needs a parser, which no other worker does.
            from kbench.worker.cuda_on_cpu.emulation import Emulation  # noqa: PLC0415

            self.emulation = Emulation(Path(request["path"]))
        prepare = self.emulation.prepare if self.emulation is not None else None
        intercept.install_over(self._build_socket, prepare=prepare)
        memory.set_malloc_fill(0)
        with self._running(draws_there=False), self.globals.odd_threads():
            module = load_module(Path(request["path"]), request["module"])
        self.factory = getattr(module, request["model"], None)
        if not callable(self.factory):
            raise TypeError(f"`{request['model']}` is no class in {request['path']}")
        return {"changed": self.globals.changes()}

    def _running(self, *, draws_there: bool) -> contextlib.AbstractContextManager[None]:
        """Where code of the candidate's runs: as it is, or believing in a device on which it draws its numbers."""
        return contextlib.nullcontext() if self.emulation is None else self.emulation.running(draws_there=draws_there)

    def arena(self, request: Message, fds: list[int]) -> Message:
        """Open memory of the judge's under a name."""
        self._close_arenas([request["name"]])
        self.arenas[request["name"]] = memory.open_arena(request["arena"], fds, self.device)
        return {}

    def _close_arenas(self, names: list[str]) -> None:
        for name in names:
            if (arena := self.arenas.pop(name, None)) is not None:
                if self.device.type == "cuda":
                    cudart.synchronize()
                memory.close_arena(arena)

    def forget(self, _request: Message, _fds: list[int]) -> Message:
        """Drop the model and the shared memory of a case."""
        self.model = self.call = self.timed_call = self.timer = self.steady = None
        self._aside = None, None
        self._held = []
        gc.collect()
        self._close_arenas(list(self.arenas))
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        return {}

    def construct(self, request: Message, _fds: list[int]) -> Message:
        """Build the model from one seed; say what parameters and buffers it has."""
        self.model = self.call = None
        init = tensors.rebuild(request["init"], self._view("init"))
        seed_everything(request["seed"])
        with self._running(draws_there=False):
            model = self.factory(*init)
        if isinstance(model, torch.nn.Module):
            model.to(self.device)
        wrap = self.args.get("wrap")
        self.model = model
        self.call = WRAPS[wrap](model) if wrap else model
        return {"manifest": manifest(model), "changed": self.globals.changes()}

    def another(self, request: Message, fds: list[int]) -> Message:
        """Build a second model beside the first, which is then the one that waits for `swap`."""
        first = self.model, self.call
        answer = self.construct(request, fds)
        self._aside = first
        return answer

    def swap(self, _request: Message, _fds: list[int]) -> Message:
        """Go back to the model that waits; the other one waits now."""
        (self.model, self.call), self._aside = self._aside, (self.model, self.call)
        return {}

    def weights(self, request: Message, _fds: list[int]) -> Message:
        """Copy the judge's weights into those of the model that are named; count those that differed.

        None is copied where the names were guessed and the model's own are the same in another order: `same` is that order.
        """
        state = dict(state_of(self.model))
        given = [(name, self._view("weights")(spec)) for name, spec in request["map"]]
        differed = [name for name, tensor in given if not torch.equal(state[name], tensor)]
        if differed and request["guessed"] and (same := _in_own_order(state, given)):
            return {"differed": [], "same": same}
        with _no_grad():
            for name, tensor in given:
                if name in differed:
                    _copy(state[name], tensor)
        return {"differed": differed}

    def left_weights(self, request: Message, _fds: list[int]) -> Message:
        """Copy the weights of the model that are named into the judge's memory, as they are by now."""
        state = dict(state_of(self.model))
        if self.device.type == "cuda":
            cudart.synchronize()
        copied = [name in state and self._hand_back(state[name], place, "weights") for name, place in request["map"]]
        if self.device.type == "cuda":
            cudart.synchronize()
        return {"copied": copied}

    def forward(self, request: Message, _fds: list[int]) -> Message:
        """Call the model once on fresh inputs and copy its outputs into the judge's memory.

        On a GPU the inputs arrive on the caller's stream behind a delay, and the outputs leave on the
        same stream at once: work on a stream of the candidate's own that nobody joined reads and
        leaves poison. Without a seed, the generators go on from where the last call left them. A way
        that is rehearsed finds other inputs there first, which become poison before the real ones come. With
        `hold`, the results are kept for `held`.
        """
        if self.emulation is None:
            args = tensors.rebuild(request["args"], self._view("inputs", request.get("shift", 0)))
        else:
            args = self.emulation.rebuild(request["args"], self.arenas["inputs"], shift_bytes=request.get("shift", 0))
        lent = tensors.tensors_in(args)
        forms = [form(tensor) for tensor in lent]
        before = versions(self.model)
        way, call = ways.WAYS[request.get("way", "plain")], self.call
        if way.rehearse is not None:
            call = way.rehearse(call, args)
            self._poison_inputs(request["args"])
        memory.set_malloc_fill(request.get("fill", 0))
        if self.device.type == "cuda":
            slots.poison_free_memory(request.get("fill", 0))
        if request["seed"] is not None:
            seed_everything(request["seed"])
        started_ns = _now_ns()
        with way.around():
            if self.device.type == "cuda":
                torch.cuda._sleep(self._delay_cycles if way.rehearse is None else _LONG_DELAY_CYCLES)
            if request["staged"]:
                self._deliver(request["args"], request["staged"])
            with self._running(draws_there=True):
                result = way.call(call, args)
            memory.set_malloc_fill(0)
            state = generator_state(self.device)
            spec, given, copied = self._hand_over(result, request["outputs"])
            left = [self._hand_back(lent[number], place) for number, place in request["written"]]
        least, most = _DELAY_CYCLES
        self._delay_cycles = min(most, max(least, 2 * _CYCLES_A_NS * (_now_ns() - started_ns)))
        reformed = [number for number, tensor in enumerate(lent) if form(tensor) != forms[number]]
        answer = {"tree": spec, "reformed": reformed, "copied": copied, "left": left, "generators": state, "changed": self.globals.changes()}
        if self.device.type == "cuda":
            answer["cuda_error"] = cudart.last_error()
            cudart.synchronize()
        if request.get("hold"):
            self._held = given
        if self.emulation is None:
            suspects = memory.written_past(given, request.get("fill", 0))
            del result, given
            answer["past_end"] = [index for index, suspect in suspects.items() if suspect.expired()]
        else:
            answer["cuda_error"] = self.emulation.take_error()
            self.emulation.hand_back()
        answer["state_changed"] = changed_names(before, versions(self.model))
        return answer

    def held(self, request: Message, _fds: list[int]) -> Message:
        """Hand the results of a call that was made with `hold` over once more; those that are views of inputs have changed with them."""
        lent = self.arenas["inputs"]
        theirs = range(lent.data_ptr(), lent.data_ptr() + lent.numel())
        copied = self._copy_out(self._held, request["outputs"])
        copied = [fits and tensor.data_ptr() not in theirs for fits, tensor in zip(copied, self._held, strict=True)]
        self._held = []
        if self.device.type == "cuda":
            cudart.synchronize()
        return {"copied": copied}

    def _deliver(self, args: tensors.Spec, staged_shift: int) -> None:
        """Copy the inputs, on the current stream, from where the judge wrote them to where the candidate sees them."""
        arena = self.arenas["inputs"]
        for start, end in _places(args):
            _copy(arena[start:end], arena[start + staged_shift : end + staged_shift])

    def _poison_inputs(self, args: tensors.Spec) -> None:
        """Fill the inputs with poison, for every stream, when all is done that read them; what lies around them shows what was written there."""
        if self.device.type == "cuda":
            cudart.synchronize()
        for start, end in _places(args):
            _fill(self.arenas["inputs"][start:end], memory.POISON_BYTE)
        if self.device.type == "cuda":
            cudart.synchronize()

    def _hand_over(self, result: object, outputs: list[tensors.Spec]) -> tuple[tensors.Spec, list[torch.Tensor], list[bool]]:
        """Describe the outputs and copy those that fit into the judge's places for them."""
        given: list[torch.Tensor] = []
        spec = describe_output(result, given)
        return spec, given, self._copy_out(given, outputs)

    def _copy_out(self, given: list[torch.Tensor], outputs: list[tensors.Spec]) -> list[bool]:
        """Copy those outputs that fit into the judge's places for them; which ones do."""
        copied = []
        for index, tensor in enumerate(given):
            place = outputs[index] if index < len(outputs) else None
            fits = (
                place is not None
                and place["shape"] == list(tensor.shape)
                and place["dtype"] == tensors.dtype_name(tensor.dtype)
                and tensor.device.type == self.device.type
            )
            if place is not None and fits:
                _copy(self._view("outputs")(place), tensor.detach())
            copied.append(fits)
        return copied

    def _hand_back(self, tensor: torch.Tensor, place: tensors.Spec, arena: str = "outputs") -> bool:
        """Copy what calls left in an input or a weight into its place in the judge's memory, if it still fits that."""
        fits: bool = place["shape"] == list(tensor.shape) and place["dtype"] == tensors.dtype_name(tensor.dtype)
        if fits:
            _copy(self._view(arena)(place), _detach(tensor))
        return fits

    def _view(self, name: str, shift_bytes: int = 0) -> Callable[[tensors.Spec], torch.Tensor]:
        return lambda spec: tensors.view_of(self.arenas[name], spec, shift_bytes=shift_bytes)

    def prepare(self, request: Message, _fds: list[int]) -> Message:
        """Get ready for the clock: threads, allocator, and a timer over the shared memory."""
        torch.set_num_threads(int(request["threads"]))
        memory.keep_freed_memory()
        self.globals.rebase_settings()
        self.timed_call = with_written(self.call, request["written"]) if request["written"] else self.call
        self.timer = slots.TIMERS[self.device.type](
            call=self.timed_call, inputs=self.arenas["inputs"], outputs=self.arenas["outputs"], places=request["outputs"]
        )
        return {}

    def chains(self, request: Message, _fds: list[int]) -> Message:
        """Get the chains of a steady state ready; `refused` says why there are none."""
        self.steady = None
        timer = self._gpu_timer()
        try:
            self.steady = steady.Steady(timer, self.timed_call, timer.arguments(request), kind=request["kind"], calls=request["calls"])
        except steady.CaptureError as error:
            return {"refused": str(error)}
        return {}

    def chain(self, request: Message, _fds: list[int]) -> Message:
        """Time the chains once, and hand over what the last call of the last one returned."""
        if self.steady is None:
            raise RuntimeError("the judge asked for a chain before there was one")
        answer, result = self.steady.measure(request["seed"])
        self._gpu_timer().hand_over([result])
        cudart.synchronize()
        return answer

    def kernels(self, request: Message, _fds: list[int]) -> Message:
        """Say which kernels a call runs."""
        timer = self._gpu_timer()
        # A traced launch takes the host longer.
        return kernels.trace(self.call, timer.arguments(request), lambda: timer.hide(_TRACED_LAUNCH * timer.enqueue_s))

    def _gpu_timer(self) -> slots.GpuTimer:
        timer = self._timer()
        if self.device.type != "cuda":
            raise RuntimeError("there is no such measurement on a CPU")
        return cast("slots.GpuTimer", timer)

    def _timer(self) -> slots.Timer:
        if self.timer is None:
            raise RuntimeError("the judge asked for a time before it prepared the clock")
        return self.timer


def load_module(path: Path, name: str) -> types.ModuleType:
    """Import a file under a name of our own, so that neither its folder nor its siblings are searched."""
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot import {path}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def with_written(call: Callable[..., Any], written: list[int]) -> Callable[..., Any]:
    """A call that gives, behind what it returns, the input tensors of these numbers, which are compared like it."""
    tensors_in = tensors.tensors_in

    def both(*args: Any) -> list[Any]:
        lent = tensors_in(args)
        result = call(*args)
        return [result, *[lent[number] for number in written]]

    return both


def _places(args: tensors.Spec) -> Iterator[tuple[int, int]]:
    """Where each tensor of a spec lies in its arena: its first byte, and the first one after it."""
    for _, leaf in tensors.leaves(args):
        if leaf["k"] == "tensor":
            n_bytes = tensors.span_elements(leaf["shape"], leaf["stride"]) * tensors.dtype_of(leaf["dtype"]).itemsize
            yield leaf["offset"], leaf["offset"] + n_bytes


def state_of(model: object) -> list[tuple[str, torch.Tensor]]:
    """The parameters and buffers of a model, in its own order; none for what is no Module."""
    if not isinstance(model, torch.nn.Module):
        return []
    return [*_named_parameters(model), *_named_buffers(model)]


def _in_own_order(state: Mapping[str, torch.Tensor], given: list[tuple[str, torch.Tensor]]) -> list[str]:
    """Name for each weight that is given one of the model's that equals it, each once; none where one has no equal."""
    left = dict.fromkeys(name for name, _ in given)
    found = []
    for _, tensor in given:
        name = next((name for name in left if state[name].dtype == tensor.dtype and torch.equal(state[name], tensor)), None)
        if name is None:
            return []
        del left[name]
        found.append(name)
    return found


def form(tensor: torch.Tensor) -> tuple[Any, ...]:
    """What a caller may rely on of a tensor besides its values."""
    return tensor.shape, tensor.stride(), tensor.storage_offset(), tensor.data_ptr(), tensor.requires_grad


def versions(model: object) -> dict[str, int]:
    """How often each parameter and buffer of a model was written to, by name."""
    return {name: tensor._version for name, tensor in state_of(model)}


def changed_names(before: Mapping[str, int], after: Mapping[str, int]) -> list[str]:
    """Whose versions differ, of those that are on both sides: a call may register a buffer of its own."""
    return [name for name, version in before.items() if after.get(name, version) != version]


def manifest(model: object) -> list[list[Any]]:
    """Name, dtype and shape of each parameter and buffer, in order."""
    return [[name, tensors.dtype_name(tensor.dtype), list(tensor.shape)] for name, tensor in state_of(model)]


def describe_output(value: object, given: list[torch.Tensor], depth: int = 0) -> tensors.Spec:
    """Describe what a model returned; the plain tensors in it go to `given` in order, those of a dict by key.

    A tensor must be exactly a `torch.Tensor` with storage of its own kind: a subclass, or one whose
    methods are shadowed on the instance, could compute later than the clock looks.
    """
    if isinstance(value, torch.Tensor):
        return _describe_tensor(value, given)
    if isinstance(value, (list, tuple, dict)) and depth >= tensors.DEEPEST:
        return {"k": "other", "v": f"a structure nested more than {tensors.DEEPEST} deep"}
    if isinstance(value, (list, tuple)):
        items = [describe_output(item, given, depth + 1) for item in value[:10_000]]
        return {"k": "seq", "items": items, "tuple": isinstance(value, tuple)}
    if isinstance(value, dict):
        if strange := [key for key in dict.keys(value) if type(key) not in tensors.KEY_TYPES]:
            return {"k": "other", "v": f"a dict with a key of type {type(strange[0]).__name__} (only str, int and bool can be compared)"[:120]}
        return {
            "k": "dict",
            "keys": tensors.keys_of(value),
            "items": [describe_output(item, given, depth + 1) for item in tensors.values_of(value)],
        }
    return tensors.describe(value)


def _describe_tensor(tensor: torch.Tensor, given: list[torch.Tensor]) -> tensors.Spec:
    if type(tensor) is not torch.Tensor and type(tensor) is not torch.nn.Parameter:
        return {"k": "other", "v": f"{type(tensor).__name__} (a subclass of torch.Tensor)"[:120]}
    # torch.compile leaves marks of its own on the tensors that it saw.
    if shadowed := sorted(name for name in vars(tensor) if not name.startswith("_dynamo")):
        return {"k": "other", "v": f"a tensor with attributes of its own: {', '.join(shadowed)}"[:120]}
    if obstacle := tensors.obstacle(tensor) or ("a tensor without data (device meta)" if tensor.is_meta else ""):
        return {"k": "other", "v": obstacle}
    given.append(tensor)
    return {
        "k": "tensor",
        "dtype": tensors.dtype_name(tensor.dtype),
        "shape": list(tensor.shape),
        "stride": list(tensor.stride()),
        "offset": 0,
        "device": tensor.device.type,
    }


def failure(error: BaseException, file: str = "") -> Message:
    """Turn an exception into an answer that says where in `file` it came from; its own `__str__` may raise, too."""
    try:
        text = str(error)
    except BaseException as inner:  # noqa: BLE001 - hostile formatting
        text = f"(its message cannot be shown: {type(inner).__name__})"
    try:
        # A message of many MB would be taken apart line by line.
        is_long = len(text) > _TRACE_LIMIT
        lines = traceback.format_tb(error.__traceback__, limit=-8) if is_long else traceback.format_exception(error, limit=-8)
        trace, place, hint = "".join(lines), _place(error, file), _hint(error, Path(file))
    except BaseException:  # noqa: BLE001 - hostile formatting
        trace = place = hint = ""
    kind = type(error).__name__
    out_of_memory = isinstance(error, (MemoryError, torch.cuda.OutOfMemoryError)) or any(words in text for words in _OUT_OF_MEMORY)
    return {
        "ok": False,
        "type": kind[:80],
        "message": f"{text[:_TEXT_LIMIT]}{hint}",
        "trace": trace[-_TRACE_LIMIT:],
        "place": place,
        "memory": out_of_memory,
        "stage": getattr(error, "kbench_stage", ""),
        "reason": str(getattr(error, "kbench_reason", ""))[:80],
        "log": str(getattr(error, "kbench_log", ""))[-_TRACE_LIMIT:],
    }


def _hint(error: BaseException, file: Path) -> str:
    """What to do about an exception that comes of another file of the candidate's own tree; empty for any other."""
    around = file.parents[:_TREE_DEPTH]
    is_beside = False
    if isinstance(error, ImportError):
        name = (error.name or "").partition(".")[0]
        is_beside = "relative import" in str(error) or any((folder / name).is_dir() or (folder / f"{name}.py").is_file() for folder in around if name)
    elif isinstance(error, PermissionError) and isinstance(error.filename, str):
        is_beside = not set(around).isdisjoint(Path(error.filename).absolute().parents)
    return _ONE_FILE if is_beside else ""


def _place(error: BaseException, file: str) -> str:
    """The innermost line of a file that an exception came through, as `name.py:12`; empty where it came through none."""
    line, step = 0, error.__traceback__
    while step is not None:
        if step.tb_frame.f_code.co_filename == file:
            line = step.tb_lineno
        step = step.tb_next
    return f"{Path(file).name}:{line}" if line else ""
