"""Which tasks and candidates are there? Found by name and read as text; nothing of them runs."""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kbench.config import FILE_NAME
from kbench.errors import NothingSelectedError, UsageError
from kbench.records import Candidate, Task
from kbench.source import NAME, NAME_RULE, SourceFault, candidate_facts, cases_of, read_source, tame


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What a run is about; every candidate's task is among the tasks."""

    tasks: tuple[Task, ...]
    candidates: tuple[Candidate, ...]


def find_root(start: Path) -> Path:
    """Find the nearest folder, `start` or above, that has a kbench.toml.

    Raises:
        UsageError: there is none.
    """
    start = start.resolve()
    for folder in (start, *start.parents):
        if (folder / FILE_NAME).is_file():
            return folder
    raise UsageError(
        f"no {FILE_NAME} in {start} or above it",
        hint=f"`touch {FILE_NAME}` makes this folder a tree of kbench; or name one with `--root DIR`",
    )


def discover(root: Path, selectors: Sequence[str] = ()) -> Selection:
    """Find what the selectors name in a tree; without selectors, everything.

    Raises:
        NothingSelectedError: a selector names nothing.
        UsageError: the tree has no such folders, or a path outside of it was named.
    """
    if not root.is_dir():
        raise UsageError(f"no folder {root}", hint="name one that is there with `--root DIR`")
    tasks = {task.name: task for task in _tasks(root)}
    candidates = list(_candidates(root, tasks))
    chosen = _chosen(root, candidates, tasks, selectors)
    for candidate in chosen:
        if candidate.task not in tasks:
            path = root / "references" / f"{candidate.task}.py"
            tasks[candidate.task] = Task(name=candidate.task, reference=path, error=f"no reference references/{candidate.task}.py for it")
    if selectors:
        named = {candidate.task for candidate in chosen}
        tasks = {name: task for name, task in tasks.items() if name in named or _matches_any(name, selectors)}
    return Selection(tasks=tuple(tasks.values()), candidates=tuple(chosen))


def discover_pair(reference: Path, candidate: Path) -> Selection:
    """Take a reference file and a candidate file from anywhere.

    Raises:
        UsageError: one of them is not there.
    """
    for option, path in (("--reference", reference), ("--candidate", candidate)):
        if not path.is_file():
            raise UsageError(f"`{option} {path}`: no such file", hint="name a Python file")
    task = _task(reference.resolve(), tame(reference.stem))
    return Selection(tasks=(task,), candidates=(_candidate(candidate.resolve(), task.name, tame(candidate.stem)),))


def _tasks(root: Path) -> Iterable[Task]:
    for path in _python_files(root / "references"):
        yield _task(path, path.stem)


def _task(path: Path, name: str) -> Task:
    source = read_source(path)
    if source.error:
        return Task(name=name, reference=path, sha256=source.sha256, error=source.error)
    try:
        return Task(name=name, reference=path, cases=cases_of(source), sha256=source.sha256)
    except SourceFault as fault:
        return Task(name=name, reference=path, sha256=source.sha256, error=str(fault))


def _candidates(root: Path, tasks: Iterable[str]) -> Iterable[Candidate]:
    folder = root / "candidates"
    found = sorted(path for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
    for task_folder in found:
        if task_folder.name.startswith((".", "_")) or (task_folder.name not in tasks and not any(_python_files(task_folder))):
            continue
        for path in _python_files(task_folder):
            yield _candidate(path, task_folder.name, path.stem)


def _candidate(path: Path, task: str, name: str) -> Candidate:
    if not NAME.fullmatch(name):
        error = f"{tame(path.name)}: a candidate's name may have {NAME_RULE}"
        return Candidate(task=tame(task), name=tame(name), source=path, error=error)
    source = read_source(path)
    if source.error:
        return Candidate(task=task, name=name, source=path, sha256=source.sha256, error=source.error)
    try:
        facts = candidate_facts(source)
    except SourceFault as fault:
        return Candidate(task=task, name=name, source=path, sha256=source.sha256, error=str(fault))
    return Candidate(task=task, name=name, source=path, language=facts.language, devices=facts.devices, sha256=source.sha256)


def _python_files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.glob("*.py") if not path.name.startswith((".", "_")))


def _chosen(root: Path, candidates: Sequence[Candidate], tasks: Iterable[str], selectors: Sequence[str]) -> list[Candidate]:
    if not selectors:
        if not candidates:
            raise NothingSelectedError(f"there are no candidates in {root / 'candidates'}", hint="`kbench new TASK/NAME` makes one")
        return list(candidates)
    chosen: dict[str, Candidate] = {}
    for selector in selectors:
        found = _select(root, candidates, selector)
        if not found:
            raise NothingSelectedError(f"`{selector}` names no candidate", hint=_nearest(selector, candidates, tasks))
        chosen |= {candidate.label: candidate for candidate in found}
    return [candidate for candidate in candidates if candidate.label in chosen]


def _select(root: Path, candidates: Sequence[Candidate], selector: str) -> list[Candidate]:
    if selector.endswith(".py"):
        path = Path(selector).resolve()
        if path.is_file() and not path.is_relative_to((root / "candidates").resolve()):
            raise UsageError(
                f"{selector} lies outside of {root / 'candidates'}",
                hint=f"name its reference too: `--reference FILE --candidate {selector}`",
            )
        return [candidate for candidate in candidates if candidate.source.resolve() == path]
    return [candidate for candidate in candidates if _matches(candidate.label, selector) or _matches(candidate.task, selector)]


def _matches(name: str, selector: str) -> bool:
    return fnmatch.fnmatchcase(name, selector.rstrip("/"))


def _matches_any(task: str, selectors: Sequence[str]) -> bool:
    return any(_matches(task, selector) for selector in selectors)


def _nearest(selector: str, candidates: Sequence[Candidate], tasks: Iterable[str]) -> str:
    known = [*tasks, *(candidate.label for candidate in candidates)]
    close = difflib.get_close_matches(selector, known, n=1, cutoff=0.5)
    return f"did you mean `{close[0]}`?" if close else "`kbench list` shows what there is"
