"""Where do results go, and what is known so far? The only place that knows the columns of the CSV files.

A row is one line: whatever would break out of its cell, its line or its meaning is made visible
instead (`visible`, `_cell`). It is written whole or not at all, by one write under a lock that
every kbench honours. What stands in a file is never dropped: a line that cannot be read is reported
with its number.
"""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import errno
import fcntl
import gc
import io
import json
import math
import operator
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar, get_type_hints

from kbench.errors import KbenchError, MachineError, UsageError
from kbench.records import Comparison, Status, TimingRow, VerdictRow

TIMINGS = "timings.csv"
VERDICTS = "verdicts.csv"
SAMPLES = "samples"

# A cell holds a line or two of an error message; spreadsheets give up at 32 767 characters.
CELL_LIMIT = 2000
# Our rows take a few kB; a longer first line is not a header of ours.
_HEADER_LIMIT_BYTES = 2**16
# An append takes milliseconds; a lock held for longer than this belongs to a process that is stopped.
_LOCK_WAIT_S = 30.0
_LOCK_POLL_S = 0.005

# What a spreadsheet takes for the start of a formula, in the wide forms of East Asian keyboards too.
_FORMULA = re.compile(r"'*[=+\-@\uff1d\uff0b\uff0d\uff20]")
_NUMBER = re.compile(r"[+-]?\d+(\.\d*)?([eE][+-]?\d+)?", re.ASCII)
# Names of baselines: without digits and parentheses they refer to no cell and call nothing.
_BASELINE = re.compile(r"@[a-z]+([_-][a-z]+)*", re.ASCII)
_BASELINE_COLUMN = "candidate"
_ESCAPED_FORMULA = re.compile(r"'+[=+\-@\uff1d\uff0b\uff0d\uff20]")

# The user can mend these; anything else is the machine's trouble.
_FORBIDDEN = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_NOT_A_FOLDER = frozenset({errno.ENOTDIR, errno.EISDIR, errno.EEXIST})
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

# What cells may hold, besides any text. A row without these columns says nothing about anything.
_REQUIRED = frozenset({"run_id", "started_at", "task", "candidate"})
_WORDS: dict[str, frozenset[str]] = {"status": frozenset(Status), "verdict": frozenset(["", *Comparison])}
_NUMBERS: dict[object, Callable[[str], float]] = {int | None: int, float | None: float}

_PASS = str(Status.PASS)

R = TypeVar("R", TimingRow, VerdictRow)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A line of a results file that could not be read, and was left as it is."""

    file: Path
    line: int
    message: str

    def __str__(self) -> str:
        """Give it as one line that an editor can follow."""
        return f"{self.file}:{self.line}: {self.message}"


class Store:
    """The results folder of a project; it is made with the first row."""

    def __init__(self, results: Path) -> None:
        self._results = results
        self._verdicts = _Table(results / VERDICTS, VerdictRow)
        self._timings = _Table(results / TIMINGS, TimingRow)

    def check_writable(self) -> None:
        """Make sure before a run that its results can be kept; write no row.

        Raises:
            UsageError: the folder or a file in it cannot be written, or a file is no results file of ours.
            MachineError: the disk fails.
        """
        with self._locked():
            self._make_samples_folder()
            self._verdicts.check_writable()
            self._timings.check_writable()

    def append_verdict(self, row: VerdictRow) -> None:
        """Append one row to verdicts.csv, on the disk when this returns."""
        with self._locked():
            self._verdicts.append(row)

    def append_timing(self, row: TimingRow) -> None:
        """Append one row to timings.csv, on the disk when this returns."""
        with self._locked():
            self._timings.append(row)

    def read_verdicts(self, *, newest: bool = False) -> tuple[list[VerdictRow], list[Problem]]:
        """Read every row of verdicts.csv in its order, and what cannot be read.

        With `newest`, of the rows of a candidate on a device only the newest is among them; of equally old ones the last.
        """
        return self._verdicts.read(newest=newest)

    def read_timings(self, *, newest: bool = False) -> tuple[list[TimingRow], list[Problem]]:
        """Read every row of timings.csv in its order, and what cannot be read.

        With `newest`, of the rows of a candidate on a device only the newest is among them, and the newest pass of each case.
        """
        return self._timings.read(newest=newest)

    def judged(self) -> dict[str, str]:
        """The status of the last verdict under each identity, without keeping the rows."""
        return self._verdicts.last("identity", "status")

    def save_samples(self, run_id: str, name: str, samples: Mapping[str, object]) -> None:
        """Add the raw samples of one timing to the JSON object of its run: samples/<run_id>.json."""
        with self._locked():
            folder = self._make_samples_folder()
            _add_to_object(folder / f"{run_id}.json", name, samples)

    def read_samples(self, run_id: str) -> dict[str, Any]:
        """Read what `save_samples` kept of a run, by name; nothing where it kept nothing.

        Raises:
            UsageError: the file is no JSON object, or cannot be read.
        """
        path = self._results / SAMPLES / f"{run_id}.json"
        with _explained(path):
            try:
                found = json.loads(path.read_bytes())
            except FileNotFoundError:
                return {}
            except (ValueError, RecursionError):
                found = None
        if not isinstance(found, dict):
            raise UsageError(f"{path}: not a JSON object", hint="move the file away; its rows are then shown as they were stored")
        return found

    def _make_samples_folder(self) -> Path:
        folder = self._results / SAMPLES
        with _explained(folder):
            folder.mkdir(exist_ok=True)
        return folder

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        # A file of its own: a header is extended in a new CSV file, and a lock on the old one guards nothing.
        path = self._results / ".lock"
        with _explained(self._results):
            self._results.mkdir(exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            _lock(descriptor, path)
            yield
        finally:
            os.close(descriptor)


def place(row: TimingRow | VerdictRow) -> str:
    """Name the device of a row as a reader compares them: by its model, not by its number in the machine."""
    return _place(row.device, row.gpu, row.cpu)


def _place(device: str, gpu: str, cpu: str) -> str:
    if device == "cpu":
        return cpu or device
    return gpu or "cuda" if device == "cuda" or device.startswith("cuda:") else device


def visible(text: str) -> str:
    r"""Write what does not print as an escape (`\n`, `\x1b`, `\u202e`): no text can act on what shows it."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def clean(text: str) -> str:
    """Give a text as a cell keeps it: visible, and cut where it is too long."""
    text = visible(text[: CELL_LIMIT + 1])
    return text if len(text) <= CELL_LIMIT else text[: CELL_LIMIT - 1] + "…"


def _cell(column: str, value: object) -> str:
    """Write a value as a cell that no spreadsheet computes.

    An apostrophe goes before what begins like a formula, and before what would read as such an
    escape; `_value` takes one away again, so that every clean text comes back as it was.
    """
    if value is None:
        return ""
    if isinstance(value, (int, float)):
        # The shortest digits that read back as the same number.
        return repr(value)
    text = clean(str(value))
    if not _FORMULA.match(text) or _NUMBER.fullmatch(text):
        return text
    if column == _BASELINE_COLUMN and _BASELINE.fullmatch(text):
        return text
    return f"'{text}"


def _value(cell: str) -> str:
    return cell[1:] if _ESCAPED_FORMULA.match(cell) else cell


class _Table(Generic[R]):
    """One CSV file, whose columns are the fields of its kind of row."""

    def __init__(self, path: Path, kind: type[R]) -> None:
        self._path = path
        self._kind: type[R] = kind
        self._columns = tuple(field.name for field in dataclasses.fields(kind))

    def check_writable(self) -> None:
        """See `Store.check_writable`."""
        with _explained(self._path):
            if not os.access(self._path.parent, os.W_OK | os.X_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            if self._path.exists():
                with self._opened() as descriptor:
                    self._header(_first_line(descriptor))

    def append(self, row: R) -> None:
        """Append a row as the last whole line; the header too where there is none."""
        with _explained(self._path):
            with self._opened() as descriptor:
                header = self._header(_first_line(descriptor))
            if 0 < len(header) < len(self._columns):
                self._extend(len(header))
            with self._opened() as descriptor:
                self._append(descriptor, row, header)

    def read(self, *, newest: bool = False) -> tuple[list[R], list[Problem]]:
        """Read all rows, or those that no later one replaces; a line that cannot be a row is a problem."""
        try:
            # Only a newline ends a line, and bytes that are not UTF-8 are kept: they spoil no other line.
            with self._path.open(encoding="utf-8", errors="surrogateescape", newline="\n") as file:
                header = self._header(file.readline(_HEADER_LIMIT_BYTES))
                with uncollected():
                    return self._parse(file, len(header), newest=newest)
        except FileNotFoundError:
            return [], []
        except OSError as error:
            raise _explanation(error, self._path) from error

    def last(self, name: str, value: str) -> dict[str, str]:
        """The `value` cell of the last row for each `name` cell; lines that cannot be read say nothing."""
        found: dict[str, str] = {}
        try:
            with self._path.open(encoding="utf-8", errors="surrogateescape", newline="\n") as file:
                header = self._header(file.readline(_HEADER_LIMIT_BYTES))
                if name not in header:
                    return {}
                key_index, value_index = header.index(name), header.index(value)
                for line in file:
                    with contextlib.suppress(ValueError):
                        cells = _split(line.rstrip("\r\n"))
                        # A line that was cut off may end in any cell.
                        if len(cells) == len(header) and line.endswith("\n") and cells[key_index]:
                            found[cells[key_index]] = cells[value_index]
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise _explanation(error, self._path) from error
        return found

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int]:
        descriptor = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _header(self, line: str) -> list[str]:
        """Give the columns by the first line: ours, an older version's, a newer one's, or none yet."""
        ours = ",".join(self._columns)
        if not line.endswith("\n") and ours.startswith(line):
            # Nothing yet, or a header that was cut off before any row was written.
            return []
        text = line.removeprefix("\ufeff").rstrip("\r\n")
        columns = text.replace('"', "").split(",")
        if all(have == want for have, want in zip(columns, self._columns, strict=False)):
            return columns
        message = f"{self._path}: its first line is not this file's header: `{clean(text)[:60]}`"
        raise UsageError(message, hint="move the file away; a new one is made with the next result")

    def _append(self, descriptor: int, row: R, header: list[str]) -> None:
        size = os.fstat(descriptor).st_size if header else 0
        os.ftruncate(descriptor, size)
        cells = [_cell(name, getattr(row, name)) for name in self._columns]
        cells += [""] * (len(header) - len(cells))
        before = "" if header else ",".join(self._columns) + "\n"
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            # A line was cut off. It stays, on a line of its own, and is reported when the file is read.
            before = "\n"
        _write_whole(descriptor, (before + _line(cells)).encode(), size)

    def _extend(self, width: int) -> None:
        """Give a file of an older version the columns that came since, empty in its rows."""
        data = self._path.read_bytes()
        more = len(self._columns) - width
        lines: list[bytes] = data.replace(b"\r\n", b"\n").split(b"\n")[1:]
        lines = [line + b"," * more if _width(line) == width else line for line in lines]
        header = ",".join(self._columns).encode()
        # A temporary file and a rename: a crash in between leaves the old file whole.
        temporary = self._path.with_suffix(".csv.new")
        try:
            with temporary.open("wb") as file:
                file.write(b"\n".join([header, *lines]))
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self._path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise

    def _parse(self, lines: Iterable[str], width: int, *, newest: bool) -> tuple[list[R], list[Problem]]:
        problems: list[Problem] = []
        parser = _RowParser(self._kind, width)
        rows = self._cells(lines, parser, problems)
        return [parser.row(cells) for cells in (_newest(rows, parser) if newest else rows)], problems

    def _cells(self, lines: Iterable[str], parser: _RowParser[R], problems: list[Problem]) -> Iterator[list[Any]]:
        for number, line in enumerate(lines, start=2):
            text = line.rstrip("\r\n")
            if not text:
                continue
            try:
                yield parser.cells(text)
            except ValueError as error:
                problems.append(Problem(file=self._path, line=number, message=str(error)))


def _newest(rows: Iterable[list[Any]], parser: _RowParser[R]) -> list[list[Any]]:
    """Leave out rows that a later one replaces, by their cells: most rows of a long history need not be made."""
    kept: dict[tuple[str, ...], tuple[str, int, list[Any]]] = {}
    known = kept.get
    facts, case = parser.getter("started_at", "status", "task", "candidate", "device", "gpu", "cpu"), parser.case_index
    for number, cells in enumerate(rows):
        started_at, status, task, candidate, device, gpu, cpu = facts(cells)
        key: tuple[str, ...] = (task, candidate, _place(device, gpu, cpu))
        if (before := known(key)) is None or started_at >= before[0]:
            kept[key] = (started_at, number, cells)
        if case is not None and status == _PASS:
            key = (*key, cells[case])
            if (before := known(key)) is None or started_at >= before[0]:
                kept[key] = (started_at, number, cells)
    chosen = {number: cells for _, number, cells in kept.values()}
    return [chosen[number] for number in sorted(chosen)]


def _first_line(descriptor: int) -> str:
    data = os.pread(descriptor, _HEADER_LIMIT_BYTES, 0)
    return (data[: data.find(b"\n") + 1] or data).decode(errors="surrogateescape")


def _line(cells: list[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue()


def _write_whole(descriptor: int, data: bytes, size: int) -> None:
    """Write at the end, by one write, and see it on the disk; on failure cut back to `size`."""
    try:
        if os.write(descriptor, data) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(descriptor)
    except OSError:
        os.ftruncate(descriptor, size)
        raise


# From a line to a row.


class _RowParser(Generic[R]):
    """Turns lines of `width` cells into rows of one kind, in two steps: many a row is never asked for."""

    def __init__(self, kind: type[R], width: int) -> None:
        fields = dataclasses.fields(kind)
        hints = get_type_hints(kind)
        known = fields[:width]
        self._kind: type[R] = kind
        self._width = width
        self._names = [field.name for field in known]
        self._missing = ["" if field.default is dataclasses.MISSING else field.default for field in fields[width:]]
        self._required = self.getter(*sorted(_REQUIRED))
        self._words = [(i, _WORDS[name]) for i, name in enumerate(self._names) if name in _WORDS]
        self._numbers = [(i, _NUMBERS[hints[name]]) for i, name in enumerate(self._names) if hints[name] in _NUMBERS]
        self._of_kind = [(kind, self.getter(*(self._names[i] for i, other in self._numbers if other is kind))) for kind in _NUMBERS.values()]
        # A frozen dataclass is filled through its slots here: its own constructor takes three times as long,
        # which is half a second of a report on 100 000 rows.
        self._setters = [vars(kind)[field.name].__set__ for field in fields]

    @property
    def case_index(self) -> int | None:
        """Where the case of a time is; None for a verdict, which is one of all cases."""
        return self._names.index("case") if self._kind is TimingRow else None

    def getter(self, *names: str) -> Callable[[list[Any]], Sequence[Any]]:
        """Make a function that gives these cells of a line; empty ones for columns that an older file lacks."""
        at = [self._names.index(name) if name in self._names else None for name in names]
        if len(at) > 1 and None not in at:
            return operator.itemgetter(*at)
        return lambda cells: [cells[i] if i is not None else "" for i in at]

    def cells(self, line: str) -> list[Any]:
        """Give the cells of a line that can be a row, as text.

        Raises:
            ValueError: it cannot be one; the text says why.
        """
        cells: list[Any] = _split(line)
        if len(cells) != self._width:
            raise ValueError(f"{len(cells)} cells where the header has {self._width}")
        if "'" in line:
            cells = [_value(cell) for cell in cells]
        if not all(self._required(cells)):
            missing = next(i for i, name in enumerate(self._names) if name in _REQUIRED and not cells[i])
            raise self._refusal(missing, "")
        for i, words in self._words:
            if cells[i] not in words:
                raise self._refusal(i, cells[i])
        try:
            # For its errors only.
            for kind, getter in self._of_kind:
                list(map(kind, filter(None, getter(cells))))
        except ValueError:
            self._convert(cells)
            raise
        return cells

    def row(self, cells: list[Any]) -> R:
        """Make a row of its cells."""
        self._convert(cells)
        row = object.__new__(self._kind)
        for set_field, value in zip(self._setters, cells[: len(self._names)] + self._missing, strict=True):
            set_field(row, value)
        return row

    def _convert(self, cells: list[Any]) -> None:
        for i, number in self._numbers:
            try:
                cells[i] = number(cells[i]) if cells[i] else None
            except ValueError:
                raise self._refusal(i, cells[i]) from None

    def _refusal(self, i: int, cell: str) -> ValueError:
        return ValueError(f"`{self._names[i]}` cannot be `{clean(cell)}`")


def _split(line: str) -> list[str]:
    if not line.isascii():
        _require_text(line)
    if '"' not in line:
        return line.split(",")
    try:
        # One line at a time: an open quote ends with its own line and swallows no other row.
        return next(csv.reader([line], strict=True))
    except (csv.Error, StopIteration) as error:
        raise ValueError(f"not a line of CSV: {error}") from None


def _require_text(line: str) -> None:
    try:
        line.encode()
    except UnicodeEncodeError:
        raise ValueError("not UTF-8") from None


def _width(line: bytes) -> int:
    with contextlib.suppress(ValueError):
        return len(_split(line.decode(errors="surrogateescape")))
    return 0


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Keep the collector from looking at very many rows, again and again, while they are made and ever after.

    Rows and tables of them hold nothing but text and numbers: they are in no cycle and need no collector.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        if was_on:
            gc.enable()


# Samples.


def _add_to_object(path: Path, name: str, value: object) -> None:
    """Add a member to the JSON object in a file, one a line, without reading or writing the others again."""
    entry = f"{json.dumps(name)}: {_json(value)}\n}}\n".encode()
    with _explained(path):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            _replace_end(descriptor, entry)
        finally:
            os.close(descriptor)


def _replace_end(descriptor: int, entry: bytes) -> None:
    end = b"\n}\n"
    size = os.fstat(descriptor).st_size
    keep = max(size - len(end), 0)
    tail = os.pread(descriptor, len(end), keep)
    if size and tail != end:
        raise OSError(errno.EILSEQ, "it does not end as it was written; another program changed it")
    data = (b",\n" if keep else b"{\n") + entry
    try:
        if os.pwrite(descriptor, data, keep) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(descriptor)
    except OSError:
        os.ftruncate(descriptor, keep)
        os.pwrite(descriptor, tail, keep)
        raise


def _json(value: object) -> str:
    try:
        return json.dumps(value, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value), allow_nan=False)


def _finite(value: object) -> object:
    """Replace what JSON cannot say, an infinity or a NaN, by null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value


# Locks and errors.


def _lock(descriptor: int, path: Path) -> None:
    """Wait for the lock; the kernel frees it with the descriptor, however its holder ends."""
    deadline = time.monotonic() + _LOCK_WAIT_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise MachineError(
                    f"{path}: locked by another process for {_LOCK_WAIT_S:.0f} s",
                    hint="is a kbench stopped? `fuser` with that path names the process",
                ) from None
            time.sleep(_LOCK_POLL_S)
        else:
            return


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _explanation(error, path) from error


def _explanation(error: OSError, path: Path) -> KbenchError:
    message = f"cannot use the results in {path}: {(error.strerror or str(error)).lower()}"
    if error.errno in _NOT_A_FOLDER:
        return UsageError(message, hint="move away what is there; kbench makes its files and folders itself")
    if error.errno in _FORBIDDEN:
        return UsageError(message, hint="give yourself the right to write there, or choose another `--root`")
    if error.errno in _FULL:
        return MachineError(message, hint="free some space and run again; finished rows are kept")
    return MachineError(message)
