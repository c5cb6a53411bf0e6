"""What does CUDA C++ read like in plain C++, line by line, and which of its features stay unknown?

The text is parsed by tree-sitter's CUDA grammar and changed by small edits that never add a line, so every
message of the compiler and every fault of a kernel names a line of the candidate's own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache

import tree_sitter
import tree_sitter_cuda
from tree_sitter import Node

from kbench.worker.cuda_on_cpu import features

# Names that mean another thing, or the same thing under another name, where there is no device.
_RENAMED = {
    b"__CUDA_ARCH__": "KBENCH_CUDA_ARCH",
    b"__CUDACC__": "KBENCH_CUDACC",
    b"__noinline__": "__attribute__((noinline))",
    b"is_cuda": "is_cpu",
    b"kCUDA": "kCPU",
    # torch declares it for nvcc alone.
    b"RestrictPtrTraits": "DefaultPtrTraits",
}
# The built-in variables; as members (`config.gridDim`) they are another's.
_BUILT_IN = {
    b"threadIdx": "(::kbench_cuda::thread_index())",
    b"blockIdx": "(::kbench_cuda::block_index())",
    b"blockDim": "(::kbench_cuda::block_size())",
    b"gridDim": "(::kbench_cuda::grid_size())",
}
# Without these in it, a source has nothing that runs on a device.
_DEVICE_WORDS = frozenset((b"__global__", b"__device__", b"<<<"))
# Functions of the C library whose accesses the compiler would not report.
_LIBRARY = {b"memcpy": "copy_bytes", b"memmove": "move_bytes", b"memset": "set_bytes"}
# `DeviceType::CUDA`, `DispatchKey::CUDA` and the backend of TORCH_LIBRARY_IMPL; alone, the word may mean anything.
_BACKEND_SCOPES = (b"DeviceType", b"DispatchKey", b"Backend")
# What hands out a tensor's memory.
_POINTERS = frozenset(
    (b"data_ptr", b"mutable_data_ptr", b"const_data_ptr", b"data", b"accessor") + (b"packed_accessor", b"packed_accessor32", b"packed_accessor64")
)
# What draws into a tensor: from a device's generator, as on a device.
_DRAWING = frozenset((b"normal_", b"uniform_"))
_LAUNCHERS = frozenset((b"cudaLaunchKernel", b"cudaLaunchCooperativeKernel"))
_SITE = "::kbench_cuda::Site{__FILE__, __LINE__}"
_HEAD = '#include "kbench_cuda/device.h"\n'
_LINE = re.compile(rb'#\s*line\s+(\d+)(?:\s+"([^"]*)")?')
# What the text of a macro is wrapped in to be parsed by itself.
_MACRO_HEAD, _MACRO_TAIL = b"void kbench_macro() {", b"\n;}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsupported:
    """A feature that cannot be run here, and where it is used."""

    feature: str
    file: str
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Translation:
    """C++ for g++; it means what the CUDA source means only if `unsupported` is empty."""

    text: str
    unsupported: tuple[Unsupported, ...] = ()
    has_device_code: bool = True


def translate(cuda_source: str, *, filename: str, first_line: int = 1, read_include: Callable[[str], str | None] | None = None) -> Translation:
    """Turn CUDA C++ into C++ for the flags and headers of `build.cuda_on_cpu`.

    `filename` and `first_line` say where the source stands for the user, until a `#line` in it says otherwise:
    what compilers and faults name. `read_include` gives the text of an include that is the candidate's
    own, which then takes the include's place, and None for any other.
    """
    rewriter = _Rewriter(
        source=_normalised(cuda_source.encode("utf-8", "surrogateescape")),
        place=_Place(filename, first_line - 1),
        read_include=read_include or (lambda _: None),
    )
    rewriter.visit(_parse(rewriter.source), _Scope())
    unsupported = sorted(set(rewriter.unsupported), key=lambda found: (found.file, found.line, found.feature))
    text = _HEAD + _Place(filename, first_line - 1).directive(0) + rewriter.result()
    return Translation(text=text, unsupported=tuple(unsupported), has_device_code=rewriter.has_device_code)


@cache
def _parser() -> tree_sitter.Parser:
    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_cuda.language()))


def _parse(source: bytes) -> Node:
    return _parser().parse(source).root_node


def _normalised(source: bytes) -> bytes:
    """The source with `__align__(n)` as `alignas(n)`, which the grammar knows, at the same columns."""
    edits = _Edits()
    for leaf in _leaves(_parse(source)):
        if leaf.text == b"__align__":
            edits.replace(leaf, "alignas  ")
    return edits.apply(source)


def _leaves(node: Node) -> Iterator[Node]:
    waiting = [node]
    while waiting:
        node = waiting.pop()
        if not node.child_count:
            yield node
        waiting += reversed(node.children)


@dataclass(frozen=True, slots=True)
class _Scope:
    """What surrounds a node: whether it is in a function at all, and in one that runs on the device."""

    in_function: bool = False
    on_device: bool = False


class _Edits:
    """Replacements of bytes that do not overlap; several insertions at one place keep their order."""

    def __init__(self) -> None:
        self._edits: list[tuple[int, int, bytes]] = []

    def replace(self, node: Node, text: str) -> None:
        self._edits.append((node.start_byte, node.end_byte, text.encode()))

    def insert(self, at_byte: int, text: str) -> None:
        self._edits.append((at_byte, at_byte, text.encode()))

    def splice(self, start_byte: int, end_byte: int, text: bytes) -> None:
        self._edits.append((start_byte, end_byte, text))

    def apply(self, source: bytes) -> bytes:
        parts, at = [], 0
        for start, end, text in sorted(self._edits, key=lambda edit: (edit[0], edit[1])):
            if start < at:
                continue
            parts += [source[at:start], text]
            at = end
        return b"".join((*parts, source[at:]))


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the rows of a text (from 0) stand for the user: row r is line r + 1 + `offset` of `file`."""

    file: str
    offset: int

    def line(self, row: int) -> int:
        return row + 1 + self.offset

    def directive(self, row: int) -> str:
        return f"#line {self.line(row)} {json.dumps(self.file)}\n"


@dataclass(slots=True)
class _Rewriter:
    """Walks the tree once and collects edits."""

    source: bytes
    place: _Place
    read_include: Callable[[str], str | None]
    unsupported: list[Unsupported] = field(default_factory=list)
    _edits: _Edits = field(default_factory=_Edits)
    has_device_code: bool = False
    # `extern __shared__` arrays of the whole file, which every function that names one declares for itself.
    _dynamic: list[bytes] = field(default_factory=list)

    def result(self) -> str:
        """The changed text."""
        return self._edits.apply(self.source).decode("utf-8", "surrogateescape")

    def visit(self, node: Node, scope: _Scope) -> None:
        """Collect the edits for a node and all below it, in the order of the text; how deep it nests does not matter."""
        waiting = [(node, scope)]
        while waiting:
            node, scope = waiting.pop()
            inner = self._enter(node, scope)
            if inner is not None:
                waiting += [(child, inner) for child in reversed(node.children)]

    def _enter(self, node: Node, scope: _Scope) -> _Scope | None:
        """Collect the edits for a node; what surrounds its children, or None where they are dealt with."""
        match node.type:
            case "preproc_include":
                self._include(node)
            case "preproc_call":
                self._line_directive(node)
            case "preproc_def" | "preproc_function_def":
                self._macro(node)
                return None
            case "function_definition" | "lambda_expression":
                return self._function(node, scope)
            case "declaration":
                self._declaration(node, scope)
            case "call_expression":
                self._call(node, scope)
            case "gnu_asm_expression":
                self._assembly(node)
            case "launch_bounds":
                self._edits.replace(node, "")
                return None
            case "string_literal":
                self._string(node)
            case _ if not node.child_count:
                self._leaf(node)
        return scope

    # --- the preprocessor

    def _line_directive(self, node: Node) -> None:
        if found := _LINE.match(_text(node)):
            file = found[2].decode("utf-8", "replace") if found[2] is not None else self.place.file
            self.place = _Place(file, int(found[1]) - node.start_point[0] - 2)

    def _include(self, node: Node) -> None:
        path = node.child_by_field_name("path")
        if path is None:
            return
        name = _text(path)[1:-1].decode("utf-8", "replace")
        if feature := features.of_header(name):
            self._report(feature, node)
        elif (text := self.read_include(name)) is not None:
            self._inline(node, name, text)

    def _inline(self, node: Node, name: str, text: str) -> None:
        """Put a header of the candidate's own, translated, in place of its include."""
        inner = translate(text, filename=name, read_include=self.read_include)
        self.unsupported += inner.unsupported
        self.has_device_code |= inner.has_device_code
        after = self.place.directive(node.end_point[0] - (node.end_point[1] == 0) + 1)
        # The include of a header that guards itself ends before its line does.
        end = self.source.find(b"\n", node.start_byte)
        self._edits.splice(node.start_byte, len(self.source) if end < 0 else end, f"{inner.text}\n{after}".rstrip("\n").encode())

    def _macro(self, node: Node) -> None:
        """Translate the text that a macro stands for, as if it stood in a function."""
        value = node.child_by_field_name("value")
        if value is None:
            return
        place = _Place(self.place.file, self.place.offset + value.start_point[0])
        body = _Rewriter(source=_MACRO_HEAD + _text(value) + _MACRO_TAIL, place=place, read_include=self.read_include)
        # It may be used on either side; a launch in it is a launch of the host's.
        body.visit(_parse(body.source), _Scope(in_function=True))
        self.unsupported += body.unsupported
        self.has_device_code |= body.has_device_code
        text = body.result().encode("utf-8", "surrogateescape")
        self._edits.splice(value.start_byte, value.end_byte, text[len(_MACRO_HEAD) : -len(_MACRO_TAIL)])

    # --- functions

    def _function(self, node: Node, scope: _Scope) -> _Scope:
        qualifiers = {child.type for child in node.children} | {_text(child) for child in node.children}
        on_device = scope.on_device or bool(qualifiers & {"__global__", "__device__", b"__global__", b"__device__"})
        body = node.child_by_field_name("body")
        if body is not None and body.type == "compound_statement":
            start = body.start_byte + 1
            for bounds in (child for child in node.children if child.type == "launch_bounds"):
                self._edits.insert(start, f" ::kbench_cuda::check_launch_bounds({_first_argument(bounds)}, {_SITE});")
            own = {_text(leaf) for leaf in _leaves(body)}
            for name in (name for name in self._dynamic if on_device and name in own):
                self._edits.insert(start, _dynamic_reference(name.decode()))
        return _Scope(in_function=True, on_device=on_device)

    # --- variables

    def _declaration(self, node: Node, scope: _Scope) -> None:
        words = {_text(child) for child in node.children}
        if b"__shared__" in words:
            self._shared(node, scope, is_dynamic=b"extern" in words)
        elif not scope.in_function and words & {b"__device__", b"__constant__", b"__managed__"}:
            self._device_variable(node, is_extern=b"extern" in words)

    def _shared(self, node: Node, scope: _Scope, *, is_dynamic: bool) -> None:
        """`__shared__ T x[n];` becomes a type and a reference into the block's shared memory."""
        after = []
        for child in node.children:
            if _text(child) == b"__shared__":
                self._edits.replace(child, "typedef")
            elif _text(child) in {b"extern", b"static"}:
                self._edits.replace(child, "")
            elif child.type == "type_qualifier" and child.children and child.children[0].type == "alignas_qualifier":
                self._edits.splice(*_alignment(child))
        for declarator in node.children_by_field_name("declarator"):
            name = _declared(declarator)
            if name is None:
                continue
            text = _text(name).decode()
            self._edits.replace(name, f"kbench_type_{text}")
            if not is_dynamic:
                after.append(_static_reference(text))
            elif scope.in_function:
                after.append(_dynamic_reference(text))
            else:
                self._dynamic.append(_text(name))
        self._edits.insert(node.end_byte, "".join(after))

    def _device_variable(self, node: Node, *, is_extern: bool) -> None:
        """A variable of the device becomes known to the runtime, so that its bounds hold."""
        if is_extern:
            return
        for declarator in node.children_by_field_name("declarator"):
            if any(child.type == "function_declarator" for child in (declarator, *declarator.children)):
                continue
            name = _declared(declarator)
            if name is not None:
                text = _text(name).decode()
                self._edits.insert(
                    node.end_byte,
                    f" static ::kbench_cuda::GlobalVariable kbench_variable_{text}((const void*)&{text}, sizeof {text});",
                )

    # --- expressions

    def _call(self, node: Node, scope: _Scope) -> None:
        function = node.child_by_field_name("function")
        if function is None:
            return
        launch = next((child for child in node.children if child.type == "kernel_call_syntax"), None)
        if launch is not None:
            self._launch(function, launch, scope)
        elif function.type == "field_expression":
            self._pointer(function)
        elif _text(function) in _LAUNCHERS:
            self._packed_launch(node)

    def _launch(self, kernel: Node, launch: Node, scope: _Scope) -> None:
        """`k<<<grid, block>>>(a)` becomes a body for one thread, called with the shape, called with the arguments."""
        if scope.on_device:
            self._report("a kernel launched by a kernel", launch)
            return
        name = json.dumps(_text(kernel).decode("utf-8", "replace").replace("\n", " "))
        body = f"::kbench_cuda::kernel_of({name}, [=](auto... kbench_a) KBENCH_UNSEEN {{ ::kbench_cuda::enter_kernel(); "
        self._edits.insert(kernel.start_byte, body)
        for child in launch.children:
            if child.type == "<<<":
                self._edits.replace(child, f"(kbench_a...); ::kbench_cuda::leave_kernel(); }})({_SITE}, ")
            elif child.type == ">>>":
                self._edits.replace(child, ")")

    @property
    def _has_generator(self) -> bool:
        return b"CUDAGeneratorImpl" in self.source

    def _pointer(self, function: Node) -> None:
        receiver = function.child_by_field_name("argument")
        called = function.child_by_field_name("field")
        if receiver is None or called is None:
            return
        names = {_text(leaf) for leaf in _leaves(called)}
        wrapper = "noted" if names & _POINTERS else "Drawn" if names & _DRAWING and self._has_generator else ""
        if wrapper:
            self._edits.insert(receiver.start_byte, f"::kbench_cuda::{wrapper}(")
            self._edits.insert(receiver.end_byte, ")")

    def _packed_launch(self, node: Node) -> None:
        """The kernel keeps its type: without the cast to `void*`, the arguments can be unpacked."""
        arguments = node.child_by_field_name("arguments")
        first = arguments.named_children[0] if arguments is not None and arguments.named_children else None
        if first is None:
            return
        if first.type == "cast_expression":
            value = first.child_by_field_name("value")
            if value is not None:
                self._edits.splice(first.start_byte, value.start_byte, b"")
        elif first.type == "call_expression" and _text(first).startswith((b"reinterpret_cast", b"static_cast")):
            cast = first.child_by_field_name("function")
            if cast is not None:
                self._edits.replace(cast, "")

    def _assembly(self, node: Node) -> None:
        code = node.child_by_field_name("assembly_code")
        if code is not None and _text(code).strip(b'"').strip():
            self._report("inline PTX", node)

    def _string(self, node: Node) -> None:
        name, _, index = _text(node).strip(b'"').partition(b":")
        if name == b"cuda" and (not index or index.isdigit()):
            self._edits.replace(node, '"cpu"')

    # --- words

    def _leaf(self, node: Node) -> None:
        text = _text(node)
        if node.type == "string_content" or node.type == "comment":
            return
        if feature := features.of_name(text.decode("utf-8", "replace")):
            self._report(feature, node)
        self.has_device_code |= text in _DEVICE_WORDS
        if text in _RENAMED:
            self._edits.replace(node, _RENAMED[text])
        elif text in _BUILT_IN and node.type == "identifier":
            self._edits.replace(node, _BUILT_IN[text])
        elif text == b"CUDA" and _names_backend(node):
            self._edits.replace(node, "CPU")
        elif text in _LIBRARY and node.type == "identifier":
            scope = node.parent if node.parent is not None and node.parent.type == "qualified_identifier" else node
            if scope is node or _text(scope) in {b"std::" + text, b"::" + text}:
                self._edits.replace(scope, f"::kbench_cuda::{_LIBRARY[text]}")

    def _report(self, feature: str, node: Node) -> None:
        line = self.place.line(node.start_point[0])
        self.unsupported.append(Unsupported(feature=feature, file=self.place.file, line=line))


def _text(node: Node) -> bytes:
    return node.text or b""


def _declared(declarator: Node) -> Node | None:
    """The name that a declarator declares: the identifier that is reached first, arrays and initialisers aside."""
    if declarator.type in {"identifier", "field_identifier"}:
        return declarator
    inner = declarator.child_by_field_name("declarator")
    if inner is None:
        inner = next((child for child in declarator.named_children if "declarator" in child.type or child.type == "identifier"), None)
    return None if inner is None else _declared(inner)


def _static_reference(name: str) -> str:
    return (
        f" static ::kbench_cuda::SharedVariable kbench_place_{name}; kbench_type_{name}& {name} = "
        f"*static_cast<kbench_type_{name}*>(kbench_place_{name}.address("
        f"sizeof(kbench_type_{name}), alignof(kbench_type_{name}), {_SITE}));"
    )


def _dynamic_reference(name: str) -> str:
    return f" kbench_type_{name}& {name} = *static_cast<kbench_type_{name}*>(::kbench_cuda::dynamic_shared());"


def _alignment(qualifier: Node) -> tuple[int, int, bytes]:
    """`alignas(n)` may not stand in a type's declaration; the compiler's own attribute may."""
    inner = _text(qualifier).partition(b"(")[2].rpartition(b")")[0]
    return qualifier.start_byte, qualifier.end_byte, b"__attribute__((aligned(" + inner + b")))"


def _first_argument(bounds: Node) -> str:
    arguments = [child for child in bounds.named_children if child.type != "comment"]
    return _text(arguments[0]).decode() if arguments else "1024"


def _names_backend(node: Node) -> bool:
    parent = node.parent
    if parent is None:
        return False
    if parent.type == "qualified_identifier":
        return any(scope in _text(parent.parent or parent) for scope in _BACKEND_SCOPES)
    return b"TORCH_LIBRARY_IMPL" in _text(parent.parent or parent)[:40]
