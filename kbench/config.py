"""What is asked of a run, and how strictly? kbench.toml and the command line, made into frozen settings.

Every default lives here: the fields of `TaskSettings` and `DEFAULT_TOLERANCES`.
"""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import json
import math
import os
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kbench.errors import UsageError

FILE_NAME = "kbench.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """How far an element may lie from the expected one: `atol + rtol * |expected|`."""

    atol: float
    rtol: float


# What one rounding of the result costs, doubled for bfloat16 (unit in the last place 2^-7) and ten times
# for float16 (2^-10), whose sums are often rounded term by term; the 8-bit types allow one unit.
# A dtype that is not named here, float64 included, is held to the plain `atol` and `rtol`.
DEFAULT_TOLERANCES: Mapping[str, Tolerance] = {
    "float16": Tolerance(atol=1e-2, rtol=1e-2),
    "bfloat16": Tolerance(atol=1.6e-2, rtol=1.6e-2),
    "float8_e4m3fn": Tolerance(atol=0.125, rtol=0.125),
    "float8_e5m2": Tolerance(atol=0.25, rtol=0.25),
}
TOLERANCE_DTYPES = ("float64", "float32", *DEFAULT_TOLERANCES, "complex64", "complex128")

# Whether a candidate must be right on inputs and weights beyond the given ones.
DOMAINS = ("any", "as_given")
# Which arithmetic a candidate may compute float32 outputs in.
ARITHMETICS = ("any", "float32")
# A model that draws is held to the reference's very draws, or to their distribution.
DRAWS = ("same", "distribution")

# What a program may do with a model besides calling it plainly; a task may ask for some.
CONTRACTS = ("stream", "strided", "misaligned", "sizes", "graph", "instances", "thread", "grad", "bitwise", "shapes")

BASELINES = ("@compile", "@compile-max-autotune", "@cudagraph")


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSettings:
    """All that decides how one task is judged and timed."""

    atol: float = 1e-4
    rtol: float = 1e-4
    trials: int = 5
    timeout_s: float = 300.0
    allow_nan: bool = False
    domain: str = "any"
    arithmetic: str = "any"
    draws: str = "same"
    contract: tuple[str, ...] = ()
    tolerances: Mapping[str, Tolerance] = field(default_factory=lambda: dict(DEFAULT_TOLERANCES))
    precision: float = 0.01
    budget_s: float = 2.0
    processes: int | None = None
    baselines: tuple[str, ...] = ("@compile",)

    @property
    def sha256(self) -> str:
        """Name these settings: equal settings have equal names, on every machine."""
        text = json.dumps(dataclasses.asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """What kbench.toml says, checked: the keys of each table that it names, and their values."""

    verify: Mapping[str, object] = field(default_factory=dict)
    time: Mapping[str, object] = field(default_factory=dict)
    tasks: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    path: Path = Path(FILE_NAME)

    def settings_for(self, task: str, overrides: Mapping[str, object]) -> TaskSettings:
        """Settle what holds for a task: `overrides` beat the task, the task its section, that the default."""
        special = self.tasks.get(task, {})
        values: dict[str, Any] = {**self.verify, **self.time, **special, **overrides}
        values["tolerances"] = _tolerances(self.verify, special, overrides)
        return TaskSettings(**values)

    def require_known_tasks(self, names: Iterable[str]) -> None:
        """Refuse a `[tasks.NAME]` that no task answers to: a mistyped name would change nothing, silently.

        Raises:
            UsageError: such a table is there.
        """
        known = sorted(names)
        for name in self.tasks:
            if name not in known:
                raise UsageError(f"{self.path}: `[tasks.{name}]` names no task", hint=_nearest(name, known, "there are no tasks yet"))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """One `kbench verify`, `time` or `report`, as asked for.

    `pair` is a reference file and a candidate file outside the tree; `overrides` are the settings given on
    the command line. What is None was left to kbench. `sandbox` is `auto` or `require`. Without `warm`, no process
    of an earlier command is used and none is left; with `resume`, what has a verdict is not judged again.
    """

    root: Path | None
    selectors: tuple[str, ...] = ()
    pair: tuple[Path, Path] | None = None
    device: str = "auto"
    seed: int | None = None
    cases: tuple[str, ...] = ()
    overrides: Mapping[str, object] = field(default_factory=dict)
    jobs: int | None = None
    repeat: int | None = None
    energy: bool = False
    strict: bool = False
    sanitize: bool = False
    contract: bool = False
    fail_fast: bool = False
    sandbox: str = "auto"
    json: bool = False
    debug: bool = False
    warm: bool = True
    resume: bool = False
    config: Config = field(default_factory=Config)


def load_config(root: Path) -> Config:
    """Read the kbench.toml of a tree; without one, every default holds.

    Raises:
        UsageError: the file cannot be read, or holds what kbench does not know.
    """
    path = root / FILE_NAME
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Config(path=path)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read: {error}", hint="it must be a text file in UTF-8") from None
    return parse_config(text, path)


def parse_config(text: str, path: Path) -> Config:
    """Check the text of a kbench.toml; `path` is where it came from.

    Raises:
        UsageError: it is no TOML, or names a key or a value that kbench does not know.
    """
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: not TOML: {error}", hint="https://toml.io shows the format") from None
    _require_known(document, ("verify", "time", "tasks"), where="", path=path)
    tasks = _table(document.get("tasks", {}), where="tasks", path=path)
    return Config(
        verify=_section(document.get("verify", {}), ("verify",), where="verify", path=path),
        time=_section(document.get("time", {}), ("time",), where="time", path=path),
        tasks={name: _section(table, ("verify", "time"), where=f"tasks.{name}", path=path) for name, table in tasks.items()},
        path=path,
    )


def check_option(key: str, value: object, *, option: str) -> object:
    """Check a setting that came from the command line.

    Raises:
        UsageError: the value is not one for this key.
    """
    setting = SETTINGS[key]
    try:
        return setting.parse(value)
    except ValueError:
        raise UsageError(f"`{option}` is `{_shown(value)}`; it must be {setting.must}", hint=setting.hint) from None


def cache_folder() -> Path:
    """Where builds are kept: `$KBENCH_CACHE_DIR`, or `kbench` in the user's cache folder."""
    if chosen := os.environ.get("KBENCH_CACHE_DIR"):
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "kbench"


def cache_limit_bytes() -> int:
    """How large the build cache may grow: `$KBENCH_CACHE_GB` (10^9 bytes each), by default 10.

    Raises:
        UsageError: the variable holds no such number.
    """
    chosen = os.environ.get("KBENCH_CACHE_GB", "10")
    try:
        return int(_number(least=0, most=1e6)(float(chosen)) * 10**9)
    except ValueError:
        hint = "0 keeps nothing but the last build"
        raise UsageError(f"`KBENCH_CACHE_GB` is `{_shortened(chosen)}`; it must be a number of gigabytes from 0 to 1000000", hint=hint) from None


def lease_folder() -> Path:
    """Where the locks of devices are: `$KBENCH_LEASE_DIR`, or one place for all users of the machine.

    Not TMPDIR: a batch system gives each job its own, and two jobs may have one GPU.
    """
    return Path(os.environ.get("KBENCH_LEASE_DIR") or "/tmp/kbench-leases")


def warm_seconds() -> float:
    """How long a process with torch imported waits for the next command: `$KBENCH_WARM_S`, 0 for not at all.

    By default 600 where there is a GPU, whose torch takes seconds to import, and 0 elsewhere and under `$CI`.

    Raises:
        UsageError: the variable holds no such number.
    """
    chosen = os.environ.get("KBENCH_WARM_S")
    if chosen is None:
        return 600.0 if Path("/dev/nvidiactl").exists() and not os.environ.get("CI") else 0.0
    try:
        return _number(least=0, most=86_400)(float(chosen))
    except ValueError:
        raise UsageError(f"`KBENCH_WARM_S` is `{_shortened(chosen)}`; it must be a number of seconds from 0 to 86400", hint="0 keeps no process") from None


# What a key may hold. A parser returns the value to keep, or raises ValueError.


def _number(*, least: float, most: float, above: bool = False, below: bool = False) -> Callable[[object], float]:
    """Make a parser of finite numbers; `above` and `below` leave out the bounds themselves."""

    def parse(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(value)
        try:
            number = float(value)
        except OverflowError:
            raise ValueError(value) from None
        if not math.isfinite(number) or not least <= number <= most:
            raise ValueError(value)
        if (above and number == least) or (below and number == most):
            raise ValueError(value)
        return number

    return parse


def _count(*, most: int) -> Callable[[object], int]:
    def parse(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise ValueError(value)
        return value

    return parse


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(value)  # noqa: TRY004 - a parser has one way to refuse
    return value


def _word(*known: str) -> Callable[[object], str]:
    """Make a parser of one word out of `known`."""

    def parse(value: object) -> str:
        if not isinstance(value, str) or value not in known:
            raise ValueError(value)
        return value

    return parse


def _words(*known: str) -> Callable[[object], tuple[str, ...]]:
    """Make a parser of lists of words, all among `known` where that is not empty."""

    def parse(value: object) -> tuple[str, ...]:
        if not isinstance(value, list) or not all(isinstance(word, str) and word for word in value):
            raise ValueError(value)
        if known and not set(value) <= set(known):
            raise ValueError(value)
        return tuple(dict.fromkeys(value))

    return parse


def _tolerance_table(value: object) -> Mapping[str, Tolerance]:
    if not isinstance(value, dict) or not set(value) <= set(TOLERANCE_DTYPES):
        raise ValueError(value)
    return {dtype: _tolerance(given) for dtype, given in value.items()}


def _tolerance(given: object) -> Tolerance:
    """Read one number for both parts, or a table of both."""
    pair = given if isinstance(given, dict) else {"atol": given, "rtol": given}
    if set(pair) != {"atol", "rtol"}:
        raise ValueError(given)
    return Tolerance(atol=_ATOL(pair["atol"]), rtol=_RTOL(pair["rtol"]))


_ATOL = _number(least=0, most=math.inf)
# At a relative tolerance of 1, zeros pass for any answer.
_RTOL = _number(least=0, most=1, below=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A key of kbench.toml: the section it is of, what it may hold (in words and as a parser), and a hint.

    `section` is `verify` or `time`; `[tasks.NAME]` takes both.
    """

    section: str
    must: str
    parse: Callable[[object], object]
    hint: str = ""


SETTINGS: Mapping[str, Setting] = {
    "atol": Setting(section="verify", must="a number, 0 or more", parse=_ATOL, hint="the default is `1e-4`"),
    "rtol": Setting(
        section="verify",
        must="a number from 0 to below 1",
        parse=_RTOL,
        hint="the default is `1e-4`; at 1, zeros would pass for any answer",
    ),
    "trials": Setting(section="verify", must="a whole number from 1 to 10000", parse=_count(most=10_000)),
    "timeout_s": Setting(
        section="verify",
        must="a number of seconds above 0, at most 604800",
        parse=_number(least=0, most=604_800, above=True),
        hint="the default is `300`; a week is the most",
    ),
    "allow_nan": Setting(section="verify", must="true or false", parse=_flag),
    "domain": Setting(
        section="verify",
        must=f"one of {', '.join(f'`{name}`' for name in DOMAINS)}",
        parse=_word(*DOMAINS),
        hint="`as_given` where only inputs like those of get_inputs are meant: no variants are tried",
    ),
    "draws": Setting(
        section="verify",
        must='"same" or "distribution"',
        parse=_word(*DRAWS),
        hint="`distribution` is for candidates that draw from generators of their own",
    ),
    "contract": Setting(
        section="verify",
        must="a list of contracts",
        parse=_words(*CONTRACTS),
        hint=f"there are {', '.join(f'`{name}`' for name in CONTRACTS)}; `kbench verify --contract` reports all",
    ),
    "arithmetic": Setting(
        section="verify",
        must=f"one of {', '.join(f'`{name}`' for name in ARITHMETICS)}",
        parse=_word(*ARITHMETICS),
        hint="`float32` refuses what computes in TF32, bfloat16 or float16 though the outputs are within tolerance",
    ),
    "tolerances": Setting(
        section="verify",
        must="a table of tolerances by dtype",
        parse=_tolerance_table,
        hint=f"such as `float16 = 1e-2` or `float16 = {{ atol = 1e-3, rtol = 1e-2 }}`; dtypes: {', '.join(TOLERANCE_DTYPES)}",
    ),
    "precision": Setting(
        section="time",
        must="a number between 0 and 1",
        parse=_number(least=0, most=1, above=True, below=True),
        hint="for 1 %, write `0.01`",
    ),
    "budget_s": Setting(
        section="time",
        must="a number of seconds above 0, at most 86400",
        parse=_number(least=0, most=86_400, above=True),
        hint="the default is `2.0`",
    ),
    "processes": Setting(
        section="time",
        must="a whole number from 1 to 100",
        parse=_count(most=100),
        hint="left out, one, and up to 8 where one cannot tell",
    ),
    "baselines": Setting(
        section="time",
        must="a list of baselines",
        parse=_words(*BASELINES),
        hint=f"there are {', '.join(f'`{name}`' for name in BASELINES)}; `[]` for none",
    ),
}


# From tables to values.


def _section(value: object, sections: tuple[str, ...], *, where: str, path: Path) -> dict[str, object]:
    table = _table(value, where=where, path=path)
    known = [key for key, setting in SETTINGS.items() if setting.section in sections]
    _require_known(table, known, where=where, path=path)
    return {key: _checked(key, given, where=where, path=path) for key, given in table.items()}


def _checked(key: str, value: object, *, where: str, path: Path) -> object:
    setting = SETTINGS[key]
    try:
        return setting.parse(value)
    except ValueError:
        message = f"{path}: `{where}.{key}` is `{_shown(value)}`; it must be {setting.must}"
        raise UsageError(message, hint=setting.hint) from None


def _table(value: object, *, where: str, path: Path) -> dict[str, object]:
    if not isinstance(value, dict):
        raise UsageError(f"{path}: `{where}` is `{_shown(value)}`; it must be a table", hint=f"write `[{where}]`")
    return value


def _require_known(table: Mapping[str, object], known: Iterable[str], *, where: str, path: Path) -> None:
    known = list(known)
    for key in table:
        if key in known:
            continue
        name = f"{where}.{key}" if where else key
        elsewhere = SETTINGS.get(key)
        if elsewhere is not None:
            raise UsageError(f"{path}: `{name}` stands in the wrong place", hint=f"move it to `[{elsewhere.section}]`")
        raise UsageError(f"{path}: unknown key `{name}`", hint=_nearest(key, known, ""))


def _nearest(name: str, known: list[str], otherwise: str) -> str:
    # Even a far guess helps: the whole list follows it.
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.0)
    return f"did you mean `{close[0]}`? known: {', '.join(known)}" if close else otherwise


def _shown(value: object) -> str:
    # A string with its quotes: where a number is asked for, they are what is wrong.
    text = json.dumps(value, default=str, ensure_ascii=False) if isinstance(value, bool | list | dict | str) else str(value)
    return _shortened(text)


def _shortened(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."


def _tolerances(section: Mapping[str, Any], special: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Tolerance]:
    """Settle the tolerance of each dtype that has one of its own.

    The section's `atol` and `rtol` leave those alone, so that writing a default down changes nothing. A
    task's are meant for that task, and hold for every dtype that it does not name; the command line's for all.
    """
    found = {**DEFAULT_TOLERANCES, **section.get("tolerances", {})}
    found = {**_with_plain(found, special), **special.get("tolerances", {})}
    return _with_plain(found, overrides)


def _with_plain(tolerances: Mapping[str, Tolerance], level: Mapping[str, Any]) -> dict[str, Tolerance]:
    plain = {key: level[key] for key in ("atol", "rtol") if key in level}
    return {dtype: dataclasses.replace(pair, **plain) for dtype, pair in tolerances.items()}
