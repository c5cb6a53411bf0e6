"""What does a task's file say of itself? Read as text and by its syntax tree; nothing of it runs."""

from __future__ import annotations

import ast
import hashlib
import math
import re
import stat
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kbench.records import Case

# Kernels are text: the largest seen in public problem sets has 60 kB.
SIZE_LIMIT_BYTES = 4 * 2**20
DEVICES = ("cpu", "cuda")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,99}")
NAME_RULE = "letters, digits, `_`, `-`, `+` and `.`, at most 100, the first a letter or a digit"

_NEEDED_BY_REFERENCE = ("Model", "get_inputs", "get_init_inputs")
_DEVICES_OF = {"cuda": ("cuda",), "triton": ("cuda",), "cpp": ("cpu",), "torch": DEVICES}
# The third parameter of torch's load_inline is `cuda_sources`, the second of its load is `sources`.
_CUDA_SOURCES_POSITION = 2
_SOURCES_POSITION = 1
# What JSON and every worker can hold exactly.
_WHOLE_LIMIT = 2**63


class SourceFault(Exception):
    """A file cannot be used as it is; the text is one line that names the file, and the line where known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A file that was read: its syntax tree, or the one line that says why there is none."""

    file: str
    sha256: str = ""
    tree: ast.Module = field(default_factory=lambda: ast.Module(body=[], type_ignores=[]))
    error: str = ""

    def fault(self, message: str, node: ast.AST | None = None) -> SourceFault:
        """Say what is wrong, and where."""
        line = getattr(node, "lineno", None)
        return SourceFault(f"{self.file}:{line}: {message}" if line else f"{self.file}: {message}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateFacts:
    """What a candidate's source says of it: `language` and `devices` as in `records.Candidate`."""

    language: str
    devices: tuple[str, ...]


def tame(name: str) -> str:
    """Replace what may not stand in a name by `?`, so that it can be shown anywhere."""
    return re.sub(r"[^A-Za-z0-9_.+-]", "?", name)[:100]


def read_source(path: Path) -> Source:
    """Read and parse a file; what is wrong with it is in `error`, never raised."""
    file = tame(path.name)
    try:
        data = _read_bytes(path)
    except SourceFault as fault:
        return Source(file=file, error=f"{file}: {fault}")
    except OSError as error:
        return Source(file=file, error=f"{file}: cannot be read: {error.strerror or error}")
    sha256 = hashlib.sha256(data).hexdigest()
    try:
        return Source(file=file, sha256=sha256, tree=_parse(data))
    except SourceFault as fault:
        return Source(file=file, sha256=sha256, error=f"{file}:{fault}")


def _read_bytes(path: Path) -> bytes:
    status = path.stat()
    # A pipe or a device would keep the reader waiting, or never end.
    if not stat.S_ISREG(status.st_mode):
        raise SourceFault("not a regular file")
    if status.st_size > SIZE_LIMIT_BYTES:
        raise SourceFault(f"larger than {SIZE_LIMIT_BYTES // 2**20} MiB")
    return path.read_bytes()


def _parse(data: bytes) -> ast.Module:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise SourceFault(f"{line}: not UTF-8 (byte 0x{data[error.start]:02x})") from None
    try:
        with warnings.catch_warnings():
            # A doubtful escape sequence is the author's business.
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except SyntaxError as error:
        raise SourceFault(f"{error.lineno or 1}: syntax error: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise SourceFault(f"1: cannot be parsed: {str(error) or 'nested too deep'}") from None


def cases_of(source: Source) -> tuple[Case, ...]:
    """Read the named cases of a reference; a plain file has one, `default`.

    Raises:
        SourceFault: something that a reference needs is missing, or CASES is not what it should be.
    """
    names = _defined_names(source.tree)
    for name in _NEEDED_BY_REFERENCE:
        if name not in names and "*" not in names:
            raise source.fault(f"defines no `{name}`")
    node = names.get("CASES")
    if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
        return (Case(),)
    table = _literal(source, node.value, "CASES")
    if not isinstance(table, dict) or not table:
        raise source.fault("CASES must be a dict of at least one case", node)
    return tuple(_case(source, node, name, given, names) for name, given in table.items())


def candidate_facts(source: Source) -> CandidateFacts:
    """Read what a candidate is written in, and where it runs.

    Raises:
        SourceFault: it defines no ModelNew, or its DEVICES are not what they should be.
    """
    names = _defined_names(source.tree)
    if "ModelNew" not in names and "*" not in names:
        raise source.fault("defines no `ModelNew`" + (" (but `Model`)" if "Model" in names else ""))
    language = _language(source.tree)
    node = names.get("DEVICES")
    if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
        return CandidateFacts(language=language, devices=_DEVICES_OF[language])
    devices = _devices(_literal(source, node.value, "DEVICES"))
    if not devices:
        raise source.fault('DEVICES must hold "cpu", "cuda" or both', node)
    return CandidateFacts(language=language, devices=devices)


# Names and literals of a module.


def _defined_names(tree: ast.Module) -> dict[str, ast.AST]:
    """Map each name of the module to the statement that defines it last; `*` stands for a star import."""
    names: dict[str, ast.AST] = {}
    for node in _statements(tree.body):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                names[name] = node
            case ast.Assign(targets=targets):
                for part in (part for target in targets for part in ast.walk(target)):
                    if isinstance(part, ast.Name):
                        names[part.id] = node
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr()):
                names[name] = node
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                names.update({alias.asname or alias.name.partition(".")[0]: node for alias in aliases})
    return names


def _statements(body: list[ast.stmt]) -> Iterator[ast.AST]:
    """Walk what runs at import, in order: into `if`, `try`, `with`, `match` and loops, not into functions."""
    waiting: list[ast.AST] = list(reversed(body))
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        blocks = ("body", "handlers", "cases", "orelse", "finalbody")
        waiting += reversed([child for block in blocks for child in getattr(node, block, [])])


def _literal(source: Source, value: ast.expr, name: str) -> object:
    try:
        return ast.literal_eval(value)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        raise source.fault(f"{name} must be a literal: it is read, not run", value) from None


def _devices(value: object) -> tuple[str, ...]:
    given = [value] if isinstance(value, str) else value
    if not isinstance(given, list | tuple | set | frozenset) or not all(device in DEVICES for device in given):
        return ()
    return tuple(device for device in DEVICES if device in given)


# The cases of a reference.


def _case(source: Source, node: ast.AST, name: object, given: object, names: Mapping[str, ast.AST]) -> Case:
    if not isinstance(name, str) or not NAME.fullmatch(name):
        shown = tame(name) if isinstance(name, str) else type(name).__name__
        raise source.fault(f"the name of a case is {shown!r}; it may hold {NAME_RULE}", node)
    if not isinstance(given, dict):
        raise source.fault(f"case `{name}` must be a dict", node)
    known = ("init", "inputs", "devices", "timed")
    for key in given:
        if key not in known:
            shown = tame(key) if isinstance(key, str) else type(key).__name__
            raise source.fault(f"case `{name}`: unknown key `{shown}`; there are {', '.join(known)}", node)
    timed = given.get("timed", True)
    if not isinstance(timed, bool):
        raise source.fault(f"case `{name}`: `timed` must be True or False", node)
    devices = _devices(given.get("devices", DEVICES))
    if not devices:
        raise source.fault(f'case `{name}`: `devices` must hold "cpu", "cuda" or both', node)
    return Case(
        name=name,
        init=_keywords(source, node, f"case `{name}`: `init`", given.get("init", {}), names.get("get_init_inputs")),
        inputs=_keywords(source, node, f"case `{name}`: `inputs`", given.get("inputs", {}), names.get("get_inputs")),
        devices=devices,
        timed=timed,
    )


def _keywords(source: Source, node: ast.AST, where: str, given: object, function: ast.AST | None) -> dict[str, object]:
    """Check keyword arguments for `function`: plain data, under names that it takes."""
    if not isinstance(given, dict) or not all(isinstance(key, str) for key in given):
        raise source.fault(f"{where} must be a dict of keyword arguments", node)
    for key, value in given.items():
        if not _is_plain(value):
            raise source.fault(f"{where}: `{tame(key)}` must be made of numbers, strings, lists and dicts", node)
        if isinstance(function, ast.FunctionDef) and not _takes(function, key):
            raise source.fault(f"{where}: {function.name} takes no `{tame(key)}`", node)
    return given


def _takes(function: ast.FunctionDef, keyword: str) -> bool:
    arguments = function.args
    return arguments.kwarg is not None or any(argument.arg == keyword for argument in (*arguments.args, *arguments.kwonlyargs))


def _is_plain(value: object) -> bool:
    """Tell whether a literal survives the way to a worker, as JSON."""
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(inner) for key, inner in value.items())
    if isinstance(value, list | tuple):
        return all(_is_plain(inner) for inner in value)
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, int):
        return abs(value) < _WHOLE_LIMIT
    return value is None or isinstance(value, str)


# The language of a candidate.


def _language(tree: ast.Module) -> str:
    """Tell what a candidate's kernels are written in; a word in a docstring or a comment counts for nothing."""
    found: set[str] = set()
    prose: set[int] = set()
    for node in ast.walk(tree):
        match node:
            # Breadth first: the statement comes before the string in it.
            case ast.Expr(value=ast.Constant() as text):
                prose.add(id(text))
            case ast.Constant(value=str(text)) if id(node) not in prose and _is_cuda_text(text):
                found.add("cuda")
            case ast.Import(names=aliases) if any(alias.name.partition(".")[0] == "triton" for alias in aliases):
                found.add("triton")
            case ast.ImportFrom(module=str(module)) if module.partition(".")[0] == "triton":
                found.add("triton")
            case ast.Call():
                found.add(_language_of_call(node))
    return next((language for language in ("cuda", "triton", "cpp") if language in found), "torch")


def _is_cuda_text(text: str) -> bool:
    return "__global__" in text or text.endswith((".cu", ".cuh"))


def _language_of_call(call: ast.Call) -> str:
    name = getattr(call.func, "attr", getattr(call.func, "id", ""))
    keywords = {keyword.arg: keyword.value for keyword in call.keywords}
    if name == "load_inline":
        cuda = [keywords.get("cuda_sources"), keywords.get("with_cuda"), *call.args[_CUDA_SOURCES_POSITION:][:1]]
        return "cuda" if any(_is_given(value) for value in cuda) else "cpp"
    # `load` is also torch's, json's and pickle's: only the one with sources builds.
    sources = keywords.get("sources", *call.args[_SOURCES_POSITION:][:1])
    if name == "load" and sources is not None and (isinstance(sources, ast.List) or "sources" in keywords):
        return "cuda" if _is_given(keywords.get("with_cuda")) else "cpp"
    return "torch"


def _is_given(value: ast.expr | None) -> bool:
    """Whether an argument is there, and not the literal None, False, "" or []."""
    if value is None:
        return False
    if isinstance(value, ast.Constant):
        return bool(value.value)
    return not (isinstance(value, ast.List | ast.Tuple) and not value.elts)
