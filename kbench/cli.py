"""The commands: arguments in, text out, exit code."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from kbench import __version__, discovery
from kbench.config import RunRequest, check_option, load_config
from kbench.errors import KbenchError, UsageError
from kbench.outcome import EXIT_BUG, EXIT_ERROR, EXIT_INTERRUPTED

# What typer raises where arguments are not what they should be; some of its versions keep the name to themselves.
_TyperError: Any = typer.BadParameter.__mro__[1]
_FULL = (errno.ENOSPC, errno.EDQUOT)

app = typer.Typer(
    name="kbench",
    help="Verify and time custom GPU and CPU kernels against a reference.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Selectors = Annotated[list[str] | None, typer.Argument(metavar="[SELECTOR]...", help="task, task/candidate, a glob over those, or a file")]
Root = Annotated[Path | None, typer.Option("--root", metavar="DIR", help="the tree (default: the nearest with a kbench.toml)")]
Reference = Annotated[Path | None, typer.Option("--reference", metavar="FILE", help="a reference outside of the tree")]
CandidateFile = Annotated[Path | None, typer.Option("--candidate", metavar="FILE", help="a candidate outside of the tree")]
Device = Annotated[str, typer.Option("--device", metavar="auto|cpu|cuda|cuda:N", help="where to run")]
Seed = Annotated[str | None, typer.Option("--seed", metavar="N", help="the run's seed (default: fresh, always recorded)")]
Cases = Annotated[list[str] | None, typer.Option("--case", metavar="NAME", help="only this case; may be repeated")]
Atol = Annotated[str | None, typer.Option("--atol", metavar="X", help="absolute tolerance")]
Rtol = Annotated[str | None, typer.Option("--rtol", metavar="X", help="relative tolerance")]
Trials = Annotated[str | None, typer.Option("--trials", metavar="N", help="calls on fresh inputs in each case")]
Timeout = Annotated[str | None, typer.Option("--timeout", metavar="SECONDS", help="the longest that one candidate may take")]
Jobs = Annotated[str | None, typer.Option("--jobs", "-j", metavar="N", help="candidates judged side by side")]
Strict = Annotated[bool, typer.Option("--strict", help="count skips and broken contracts as failures")]
FailFast = Annotated[bool, typer.Option("--fail-fast", help="begin nothing more after the first failure")]
Resume = Annotated[bool, typer.Option("--resume", help="skip what has a verdict for the same content, settings and environment")]
Sandbox = Annotated[str, typer.Option("--sandbox", metavar="auto|require", help="`require` refuses to run without a sandbox")]
NoWarm = Annotated[bool, typer.Option("--no-warm", help="use no process of an earlier command, and leave none")]
Json = Annotated[bool, typer.Option("--json", help="JSON lines on stdout, one object a candidate")]
Debug = Annotated[bool, typer.Option("--debug", help="show tracebacks of kbench itself")]


@app.command("list")
def list_(selectors: Selectors = None, root: Root = None, json: Json = False, debug: Debug = False) -> None:  # noqa: ARG001
    """Show tasks, their cases and their candidates."""
    tree = discovery.find_root(Path.cwd()) if root is None else root
    selection = discovery.discover(tree, selectors or ())
    if json:
        from kbench.reports import jsonlines  # noqa: PLC0415 - each command imports what it needs: --help is instant

        tasks = {task.name: task for task in selection.tasks}
        for candidate in selection.candidates:
            typer.echo(jsonlines.line(jsonlines.list_object(tasks[candidate.task], candidate)))
    else:
        from kbench import progress  # noqa: PLC0415
        from kbench.reports import terminal  # noqa: PLC0415

        progress.console(stderr=False).print(terminal.list_table(selection.tasks, selection.candidates))


@app.command()
def verify(
    selectors: Selectors = None,
    reference: Reference = None,
    candidate: CandidateFile = None,
    root: Root = None,
    device: Device = "auto",
    seed: Seed = None,
    case: Cases = None,
    atol: Atol = None,
    rtol: Rtol = None,
    trials: Trials = None,
    timeout: Timeout = None,
    jobs: Jobs = None,
    strict: Strict = False,
    contract: Annotated[bool, typer.Option("--contract", help="report whether streams, strides, graphs, threads, … leave it right")] = False,
    sanitize: Annotated[bool, typer.Option("--sanitize", help="compute-sanitizer's four tools around each candidate's own kernels")] = False,
    fail_fast: FailFast = False,
    resume: Resume = False,
    sandbox: Sandbox = "auto",
    no_warm: NoWarm = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Build each candidate and compare its outputs with the reference's."""
    _judge("verify", **locals())


@app.command("time")
def time_(
    selectors: Selectors = None,
    reference: Reference = None,
    candidate: CandidateFile = None,
    root: Root = None,
    repeat: Annotated[str | None, typer.Option("--repeat", metavar="N", help="exactly N timed pairs")] = None,
    precision: Annotated[str | None, typer.Option("--precision", metavar="X", help="half-width of the interval, 0.01 for 1 %")] = None,
    budget: Annotated[str | None, typer.Option("--budget", metavar="SECONDS", help="time to measure in each case")] = None,
    processes: Annotated[
        str | None, typer.Option("--processes", metavar="N", help="measure in N pairs of fresh processes; the interval counts their scatter")
    ] = None,
    energy: Annotated[bool, typer.Option("--energy", help="on a GPU: joules of a call too (5 s a case)")] = False,
    device: Device = "auto",
    seed: Seed = None,
    case: Cases = None,
    atol: Atol = None,
    rtol: Rtol = None,
    trials: Trials = None,
    timeout: Timeout = None,
    jobs: Jobs = None,
    strict: Strict = False,
    fail_fast: FailFast = False,
    resume: Resume = False,
    sandbox: Sandbox = "auto",
    no_warm: NoWarm = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Verify, then time what was accepted against the reference."""
    _judge("time", **locals())


@app.command()
def report(
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="write there instead of to stdout")] = None,
    root: Root = None,
    all_rows: Annotated[bool, typer.Option("--all", help="every row instead of each candidate's latest")] = False,
    recompute: Annotated[bool, typer.Option("--recompute", help="work verdicts and times out again from the raw samples, and say what differs")] = False,
    debug: Debug = False,  # noqa: ARG001
) -> None:
    """Turn the stored results into a table in markdown."""
    from kbench import run  # noqa: PLC0415

    tree = discovery.find_root(Path.cwd()) if root is None else root
    text = run.report(RunRequest(root=tree), all_rows=all_rows, recompute=recompute)
    if output is None:
        typer.echo(text)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"`--output {output}`: {error.strerror}", hint="name a file that you can write") from None


@app.command()
def new(
    name: Annotated[str, typer.Argument(metavar="TASK[/CANDIDATE]")],
    root: Root = None,
    debug: Debug = False,  # noqa: ARG001
) -> None:
    """Write a task or a candidate to start from; it verifies as it is."""
    from kbench import scaffold  # noqa: PLC0415

    tree = discovery.find_root(Path.cwd()) if root is None else root
    for path in scaffold.create(tree, name):
        typer.echo(path)


@app.command()
def doctor(root: Root = None, json: Json = False, debug: Debug = False) -> None:  # noqa: ARG001
    """Say what this machine can do, and what mends what it cannot."""
    from kbench import doctor as examination  # noqa: PLC0415

    raise typer.Exit(examination.main(root, as_json=json))


@app.command()
def cache(
    clear: Annotated[bool, typer.Option("--clear", help="remove every build")] = False,
    debug: Debug = False,  # noqa: ARG001
) -> None:
    """Show the build cache, or empty it."""
    from kbench import doctor as examination  # noqa: PLC0415

    typer.echo(examination.clear_cache() if clear else examination.describe_cache())


@app.command()
def warm(
    end: Annotated[bool, typer.Option("--end", help="end it")] = False,
    debug: Debug = False,  # noqa: ARG001
) -> None:
    """Show the process that a command left behind to start the next one fast, or end it."""
    from kbench import doctor as examination  # noqa: PLC0415

    typer.echo(examination.end_warm() if end else examination.describe_warm())


@app.command()
def selftest(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="only these, a glob over group/name")] = None,
    jobs: Jobs = None,
    seed: Seed = None,
    debug: Debug = False,  # noqa: ARG001
) -> None:
    """Try the bundled gaming and honest candidates on this machine: caught, missed, false alarms."""
    import secrets  # noqa: PLC0415

    from kbench.config import cache_folder  # noqa: PLC0415
    from kbench.selftest import runner  # noqa: PLC0415

    wanted = runner.named(names or ())
    outcomes = runner.run_selftest(
        seed=secrets.randbits(62) if seed is None else _whole("--seed", seed, least=0, most=2**63 - 1),
        cache=cache_folder(),
        jobs=None if jobs is None else _whole("--jobs", jobs, least=1, most=1024),
        wanted=lambda entry: entry.candidate.label in wanted,
        tell=lambda outcome: typer.echo(f"{outcome.assessment:12} {outcome.entry.candidate.label}: {outcome.found}", err=True),
    )
    for row in runner.table(outcomes):
        typer.echo("  ".join(f"{cell:>11}" for cell in row))
    for surprise in runner.surprises(outcomes):
        typer.echo(surprise)
    raise typer.Exit(runner.exit_code(outcomes))


def _judge(command: str, **given: Any) -> None:
    from kbench import progress, run  # noqa: PLC0415

    request = _request(given)
    reporter = progress.reporter(as_json=request.json)
    outcome = (run.verify if command == "verify" else run.time)(request, reporter)
    raise typer.Exit(outcome.exit_code)


def _request(given: dict[str, Any]) -> RunRequest:
    """Turn arguments into a request; each bad value is named.

    Raises:
        UsageError: an argument is not what it should be.
    """
    pair = _pair(given["reference"], given["candidate"], given["selectors"])
    root = given["root"]
    if root is None:
        try:
            root = discovery.find_root(Path.cwd())
        except UsageError:
            # A pair from anywhere needs no tree; nothing is stored then.
            if pair is None:
                raise
    overrides = {
        key: check_option(key, parse(option, given[name]), option=option)
        for key, (name, option, parse) in _OVERRIDES.items()
        if given.get(name) is not None
    }
    return RunRequest(
        root=root,
        selectors=tuple(given["selectors"] or ()),
        pair=pair,
        device=_device(given["device"]),
        seed=None if given["seed"] is None else _whole("--seed", given["seed"], least=0, most=2**63 - 1),
        cases=tuple(given["case"] or ()),
        overrides=overrides,
        jobs=None if given["jobs"] is None else _whole("--jobs", given["jobs"], least=1, most=1024),
        repeat=None if given.get("repeat") is None else _whole("--repeat", given["repeat"], least=1, most=100_000),
        energy=bool(given.get("energy")),
        strict=given["strict"],
        contract=given.get("contract", False),
        sanitize=given.get("sanitize", False),
        fail_fast=given["fail_fast"],
        resume=given["resume"],
        sandbox=_one_of("--sandbox", given["sandbox"], ("auto", "require")),
        warm=not given["no_warm"],
        json=given["json"],
        debug=given["debug"],
        config=load_config(root) if root is not None else RunRequest(root=None).config,
    )


def _pair(reference: Path | None, candidate: Path | None, selectors: Sequence[str] | None) -> tuple[Path, Path] | None:
    if reference is None and candidate is None:
        return None
    if reference is None or candidate is None:
        missing = "--reference" if reference is None else "--candidate"
        raise UsageError(f"`{missing} FILE` is missing", hint="a pair outside of the tree needs both")
    if selectors:
        raise UsageError(f"`{selectors[0]}` beside a pair of files", hint="leave the selectors out")
    return reference, candidate


def _number(option: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"`{option} {text}`: not a number", hint=f"such as `{option} 1e-4`") from None


def _whole(option: str, text: str, *, least: int = -(2**63), most: int = 2**63) -> int:
    try:
        number = int(text)
    except ValueError:
        raise UsageError(f"`{option} {text}`: not a whole number", hint=f"such as `{option} {max(least, 5)}`") from None
    if not least <= number <= most:
        raise UsageError(f"`{option} {text}`: must be from {least} to {most}")
    return number


def _one_of(option: str, value: str, choices: Sequence[str]) -> str:
    if value not in choices:
        raise UsageError(f"`{option} {value}`: must be one of {', '.join(choices)}")
    return value


def _device(text: str) -> str:
    kind, colon, index = text.partition(":")
    if text in ("auto", "cpu", "cuda") or (kind == "cuda" and colon and index.isascii() and index.isdigit()):
        return text
    raise UsageError(f"`--device {text}`: no such device", hint="auto, cpu, cuda or cuda:N")


# Settings that the command line overrides: the name of the argument, the option, and how its text is read.
_OVERRIDES: dict[str, tuple[str, str, Callable[[str, str], float]]] = {
    "atol": ("atol", "--atol", _number),
    "rtol": ("rtol", "--rtol", _number),
    "trials": ("trials", "--trials", _whole),
    "timeout_s": ("timeout", "--timeout", _number),
    "precision": ("precision", "--precision", _number),
    "budget_s": ("budget", "--budget", _number),
    "processes": ("processes", "--processes", _whole),
}


@app.callback(invoke_without_command=True)
def _main(context: typer.Context, version: Annotated[bool, typer.Option("--version", help="show the version")] = False) -> None:
    if version:
        typer.echo(f"kbench {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(UsageError.exit_code)


def main() -> NoReturn:
    """Run the command line; every way to fail has its exit code and its one line."""
    debug = "--debug" in sys.argv
    signal.signal(signal.SIGTERM, lambda *_: _interrupt())
    try:
        # Left to itself, typer spreads an error over four lines.
        code = typer.main.get_command(app).main(prog_name="kbench", standalone_mode=False)
    except (_TyperError, KbenchError) as error:
        if debug:
            traceback.print_exc()
        problem, hint = _problem(error)
        _say(f"error: {problem}", f"hint: {hint}" if hint else "")
        _leave(error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        _leave(EXIT_INTERRUPTED)
    except BrokenPipeError:
        # Who read our output has enough of it.
        _leave(EXIT_INTERRUPTED)
    except SystemExit as left:
        # typer's own answer to a closed pipe is exit code 1, which would say that a candidate failed.
        _leave(EXIT_INTERRUPTED if left.code == 1 else int(left.code or 0))
    except OSError as error:
        if error.errno not in _FULL:
            _leave_with_a_bug(error, debug=debug)
        _say(f"error: {error.strerror}: the output could not be written", "hint: free some space, or write elsewhere")
        _leave(EXIT_ERROR)
    except Exception as error:  # noqa: BLE001 - the one place where every bug becomes a line
        _leave_with_a_bug(error, debug=debug)
    _leave(code if isinstance(code, int) else 0)


def _problem(error: Any) -> tuple[str, str]:
    """What went wrong, and a hint; of a KbenchError, or of what typer raised."""
    if isinstance(error, KbenchError):
        return error.message, error.hint
    text = error.format_message().rstrip(".")
    command = error.ctx.command_path if error.ctx else "kbench"
    return text[:1].lower() + text[1:], f"`{command} --help` shows what there is"


def _leave_with_a_bug(error: Exception, *, debug: bool) -> NoReturn:
    if debug:
        traceback.print_exc()
    _say(f"error: internal: {type(error).__name__}: {error}", "hint: a bug in kbench; `--debug` shows where")
    _leave(EXIT_BUG)


def _interrupt() -> None:
    raise KeyboardInterrupt


def _say(*lines: str) -> None:
    with contextlib.suppress(OSError):
        for line in filter(None, lines):
            # A name that was given to us may hold control codes.
            print("".join(char if char.isprintable() else "?" for char in line.replace("\n", " ")), file=sys.stderr)  # noqa: T201


def _leave(code: int) -> NoReturn:
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    # Nothing may hang on an exit handler once all is said.
    if code == EXIT_INTERRUPTED:
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    main()
