"""Which tasks and candidates are there, and which of them are meant? Files are read, never imported."""

from __future__ import annotations

import difflib
import fnmatch
import importlib.util
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kbench.config import FILE_NAME
from kbench.errors import NothingSelectedError, UsageError
from kbench.records import Candidate, Case, Task
from kbench.source import NAME, NAME_RULE, Source, SourceFault, candidate_facts, cases_of, read_source, tame

REFERENCES = "references"
CANDIDATES = "candidates"


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What was asked for, by name; every candidate's task is among `tasks`."""

    tasks: tuple[Task, ...] = ()
    candidates: tuple[Candidate, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """The files of a tree by name: references by task, candidates by task and name."""

    root: Path
    references: Mapping[str, Path]
    candidates: Mapping[str, Mapping[str, Path]]

    @property
    def tasks(self) -> list[str]:
        """The tasks with a reference, and the folders of candidates that lack one."""
        orphans = (task for task, found in self.candidates.items() if found)
        return sorted({*self.references, *orphans})

    @property
    def labels(self) -> list[str]:
        """Every candidate as `task/candidate`."""
        return [f"{task}/{name}" for task in sorted(self.candidates) for name in sorted(self.candidates[task])]


def find_root(start: Path) -> Path:
    """Find the tree that a folder is in: the nearest parent with a kbench.toml.

    Raises:
        UsageError: there is none.
    """
    start = start.resolve()
    for folder in (start, *start.parents):
        if (folder / FILE_NAME).is_file():
            return folder
    raise UsageError(
        f"no {FILE_NAME} in {start} or above it",
        hint=f"go to the project, name it with `--root DIR`, or start one here with `touch {FILE_NAME}`",
    )


def scan(root: Path) -> Tree:
    """List the files of a tree without reading them.

    Raises:
        UsageError: a folder cannot be listed.
    """
    if not root.is_dir():
        raise UsageError(f"no folder {root}", hint="name one that is there with `--root DIR`")
    root = root.resolve()
    folders = _by_name((path.name, path) for path in _entries(root / CANDIDATES) if path.is_dir())
    return Tree(
        root=root,
        references=_python_files(root / REFERENCES),
        candidates={task: _python_files(folder) for task, folder in folders.items()},
    )


def discover(root: Path, selectors: Sequence[str] = ()) -> Selection:
    """Read the tasks and candidates that the selectors name; none means all.

    A file that cannot be used is in the selection, with its `error`.

    Raises:
        NothingSelectedError: a selector matches nothing.
        UsageError: a selector is the path of a file outside the tree, or a folder cannot be listed.
    """
    tree = scan(root)
    if not tree.tasks:
        raise NothingSelectedError(f"there are no tasks in {root / REFERENCES}", hint="`kbench new TASK/NAME` makes one")
    if selectors:
        chosen = {pair for selector in selectors for pair in _selected(tree, selector)}
    else:
        chosen = {pair for task in tree.tasks for pair in _all_of(tree, task)}
    return Selection(
        tasks=tuple(_read_task(tree, task) for task in sorted({task for task, _ in chosen})),
        candidates=tuple(
            _read_candidate(tree.candidates[task][name], task=task, name=name)
            for task, name in sorted((task, name) for task, name in chosen if name is not None)
        ),
    )


def discover_pair(reference: Path, candidate: Path) -> Selection:
    """Read a reference and a candidate from anywhere; they are named after their files.

    Raises:
        UsageError: one of them is not there.
    """
    for option, path in (("--reference", reference), ("--candidate", candidate)):
        if not path.is_file():
            problem = "not a file" if path.exists() else "no such file"
            raise UsageError(f"`{option} {path}`: {problem}", hint="name a Python file")
    task = tame(reference.stem)
    return Selection(
        tasks=(_task_from(reference.absolute(), name=task),),
        candidates=(_candidate_from(candidate.absolute(), task=task, name=tame(candidate.stem)),),
    )


def has_cuda_parser() -> bool:
    """Whether CUDA C++ can be run without a GPU: its source is read by a parser that has to be installed."""
    return all(importlib.util.find_spec(name) is not None for name in ("tree_sitter", "tree_sitter_cuda"))


# Listing.


def _python_files(folder: Path) -> dict[str, Path]:
    return _by_name((path.stem, path) for path in _entries(folder) if path.suffix == ".py")


def _by_name(found: Iterable[tuple[str, Path]]) -> dict[str, Path]:
    """Map names that can be shown to paths; of two that look alike then, neither is lost."""
    named: dict[str, Path] = {}
    for name, path in found:
        shown = tame(name)
        while shown in named:
            shown += "?"
        named[shown] = path
    return named


def _entries(folder: Path) -> Iterator[Path]:
    """List a folder, if it is there, without what is private (`_`) or hidden (`.`)."""
    try:
        paths = sorted(folder.iterdir())
    except FileNotFoundError:
        return
    except OSError as error:
        raise UsageError(f"{folder}: cannot be listed: {error.strerror}", hint="it must be a folder you can read") from None
    yield from (path for path in paths if not path.name.startswith(("_", ".")))


# Reading.


def _read_task(tree: Tree, name: str) -> Task:
    path = tree.references.get(name)
    if path is None:
        missing = tree.root / REFERENCES / f"{name}.py"
        return Task(name=name, reference=missing, error=f"no reference {REFERENCES}/{name}.py for it")
    if not NAME.fullmatch(path.stem):
        return Task(name=name, reference=path, error=_misnamed(name))
    return _task_from(path, name=name)


def _misnamed(name: str) -> str:
    return f"{name}.py: the name may hold {NAME_RULE}"


def _task_from(path: Path, *, name: str) -> Task:
    source = read_source(path)
    cases: tuple[Case, ...] = (Case(),)
    error = source.error
    if not error:
        try:
            cases = cases_of(source)
        except SourceFault as fault:
            error = str(fault)
    return Task(name=name, reference=path, cases=cases, sha256=source.sha256, error=error)


def _read_candidate(path: Path, *, task: str, name: str) -> Candidate:
    if not NAME.fullmatch(path.stem):
        return Candidate(task=task, name=name, source=path, error=_misnamed(name))
    return _candidate_from(path, task=task, name=name)


def _candidate_from(path: Path, *, task: str, name: str) -> Candidate:
    source = read_source(path)
    try:
        return _usable_candidate(source, path, task=task, name=name)
    except SourceFault as fault:
        return Candidate(task=task, name=name, source=path, sha256=source.sha256, error=str(fault))


def _usable_candidate(source: Source, path: Path, *, task: str, name: str) -> Candidate:
    if source.error:
        raise SourceFault(source.error)
    facts = candidate_facts(source)
    return Candidate(task=task, name=name, source=path, language=facts.language, devices=facts.devices, sha256=source.sha256)


# Selecting: pairs of a task and a candidate, None standing for the task itself.

_Chosen = tuple[str, str | None]


def _selected(tree: Tree, selector: str) -> Iterable[_Chosen]:
    task, slash, name = selector.partition("/")
    if not slash and task in tree.tasks:
        return _all_of(tree, task)
    if name in tree.candidates.get(task, {}):
        return [(task, name)]
    if any(mark in selector for mark in "*?["):
        return _matching(tree, selector)
    if selector.endswith(".py") or Path(selector).exists():
        return _at_path(tree, selector)
    raise NothingSelectedError(f"`{selector}` names no candidate", hint=_nearest(tree, selector))


def _all_of(tree: Tree, task: str) -> list[_Chosen]:
    return [(task, None), *((task, name) for name in tree.candidates.get(task, {}))]


def _matching(tree: Tree, pattern: str) -> list[_Chosen]:
    """Match part by part, so that a star does not reach across the slash."""
    task_pattern, slash, name_pattern = pattern.partition("/")
    tasks = fnmatch.filter(tree.tasks, task_pattern)
    if not slash:
        found = [pair for task in tasks for pair in _all_of(tree, task)]
    else:
        found = [(task, name) for task in tasks for name in fnmatch.filter(tree.candidates.get(task, {}), name_pattern)]
    if not found:
        raise NothingSelectedError(f"`{pattern}` matches nothing", hint="`kbench list` shows what there is")
    return found


def _at_path(tree: Tree, selector: str) -> list[_Chosen]:
    path = Path(os.path.abspath(selector))
    root = tree.root
    for place in (path, path.parent.resolve() / path.name):
        if not place.is_relative_to(root):
            continue
        match place.relative_to(root).parts:
            case (folder, file) if folder == REFERENCES and place.stem in tree.references and file.endswith(".py"):
                return _all_of(tree, place.stem)
            case (folder, task) if folder == CANDIDATES and task in tree.tasks:
                return _all_of(tree, task)
            case (folder, task, _) if folder == CANDIDATES and place.stem in tree.candidates.get(task, {}):
                return [(task, place.stem)]
    if not path.exists():
        raise NothingSelectedError(f"`{selector}`: no such file", hint=_nearest(tree, f"{path.parent.name}/{path.stem}"))
    raise UsageError(
        f"`{selector}` lies outside of {root / CANDIDATES}",
        hint="name its reference too: `--reference FILE --candidate FILE`",
    )


def _nearest(tree: Tree, name: str) -> str:
    known = [*tree.tasks, *tree.labels]
    if not known:
        return "there are no tasks yet; `kbench new TASK` writes one"
    close = difflib.get_close_matches(name, known, n=1)
    return f"did you mean `{close[0]}`?" if close else "`kbench list` shows what there is"
