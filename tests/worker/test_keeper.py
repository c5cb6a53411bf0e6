"""Real processes under a real keeper: kept_work.py holds what the workers do."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kbench.worker import keeper, pids

# Far above what any of this takes; only a hang gets there.
DEADLINE_S = 30
ROOT = Path(__file__).parents[2]


class Kept:
    """A worker under its keeper, the keeper's report, and a pipe that ends when nothing is left."""

    def __init__(self, work: str, **options: object) -> None:
        self.status, status_fd = os.pipe()
        self.alive, alive_fd = os.pipe()
        command = [
            sys.executable,
            str(Path(__file__).with_name("kept_work.py")),
            work,
            str(status_fd),
            str(alive_fd),
        ]
        self.keeper = subprocess.Popen(
            [*command, json.dumps(options)],
            pass_fds=(status_fd, alive_fd),
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        os.close(status_fd)
        os.close(alive_fd)

    def await_ready(self, times: int = 1) -> None:
        text = b""
        while text.count(b"ready") < times:
            assert select.select([self.alive], [], [], DEADLINE_S)[0], "the work never began"
            text += os.read(self.alive, 4096)

    def await_nobody(self) -> None:
        """Read until every process that holds the pipe has gone."""
        deadline_s = time.monotonic() + DEADLINE_S
        while select.select([self.alive], [], [], max(deadline_s - time.monotonic(), 0))[0]:
            if not os.read(self.alive, 4096):
                return
        pytest.fail("something is left running")

    def report(self) -> dict[str, Any]:
        assert select.select([self.status], [], [], DEADLINE_S)[0], "no report"
        with open(self.status, closefd=False) as file:
            report: dict[str, Any] = json.loads(file.readline())
        self.await_nobody()
        return report

    def close(self) -> None:
        self.keeper.kill()
        self.keeper.wait()
        # Not to its end: what a keeper fails to end may hold it for ever.
        self.keeper.stdout.close()
        os.close(self.status)
        os.close(self.alive)


@pytest.fixture
def keep() -> Iterator[Any]:
    kept: list[Kept] = []

    def start(work: str, **options: object) -> Kept:
        kept.append(Kept(work, **options))
        return kept[-1]

    yield start
    for one in kept:
        one.close()


@pytest.mark.parametrize(
    ("work", "code", "number"),
    [
        ("return", 0, None),
        ("exit_0", 0, None),
        ("exit_3", 3, None),
        ("exit_text", 1, None),
        ("exit_none", 0, None),
        ("raise", 1, None),
        ("raise_base", 1, None),
        ("segfault", None, signal.SIGSEGV),
        ("abort", None, signal.SIGABRT),
        ("kill_itself", None, signal.SIGKILL),
        ("kill_group", None, signal.SIGKILL),
    ],
)
def test_the_report_says_how_the_worker_ended(keep: Any, work: str, code: int | None, number: int | None) -> None:
    report = keep(work).report()

    assert (report["exit"], report["signal"]) == (code, number)
    assert report["cause"] == ""
    assert report["leftovers"] == 0


def test_what_the_worker_printed_is_not_lost(keep: Any) -> None:
    kept = keep("return")
    kept.report()
    assert b"printed, not flushed" in kept.keeper.stdout.read()


def test_an_exception_is_the_workers_last_word(keep: Any) -> None:
    kept = keep("raise")
    kept.report()
    assert b"ValueError: what went wrong" in kept.keeper.stdout.read()


def test_a_daemon_is_ended(keep: Any) -> None:
    """Two forks and a session of its own do not get it away from the reaper of all below."""
    report = keep("daemon").report()

    assert report["exit"] == 0
    assert report["leftovers"] == 1


def test_many_leftovers_are_ended_whatever_group_or_state_they_are_in(keep: Any) -> None:
    assert keep("daemon_of_children").report()["leftovers"] == 6


@pytest.mark.parametrize("unlisted", [False, True])
def test_where_signals_are_not_fenced_all_leftovers_are_found(keep: Any, unlisted: bool) -> None:
    """Also where the kernel lists no children."""
    assert keep("daemon_of_children", unfenced=True, unlisted=unlisted).report()["leftovers"] == 6


def test_a_child_that_had_ended_is_no_leftover(keep: Any) -> None:
    assert keep("zombie").report()["leftovers"] == 0


@pytest.mark.parametrize("unfenced", [False, True])
@pytest.mark.parametrize("work", ["fork_bomb", "fork_bomb_of_sessions"])
def test_a_fork_bomb_is_ended(keep: Any, work: str, unfenced: bool) -> None:
    """Also where the kernel cannot fence signals, and the keeper has to find all that it ends."""
    report = keep(work, max_processes=50, unfenced=unfenced).report()

    assert report["cause"] == "processes"
    assert report["leftovers"] >= 50


def test_threads_are_no_processes(keep: Any) -> None:
    report = keep("threads", max_processes=50).report()

    assert (report["exit"], report["cause"]) == (0, "")


def test_no_more_tasks_than_the_limit_are_let_through(keep: Any) -> None:
    """The only limit that binds root where it stays root, beside a GPU: the kernel refuses, before anybody has to count."""
    group = pids.Group.make(30)
    if group is None:
        pytest.skip("this process may make no control group")
    group.remove()

    report = keep("count_tasks", max_tasks=30, max_processes=1000).report()

    assert report["exit"] == 29
    assert report["leftovers"] == 29
    assert not [path for parent in pids._parents() for path in parent.glob("kbench-*")]


@pytest.mark.parametrize("work", ["fill_disk", "fill_disk_namelessly", "fill_disk_with_names"])
def test_who_fills_the_disk_is_ended(keep: Any, tmp_path: Path, work: str) -> None:
    scratch = tmp_path / "scratch"

    report = keep(work, scratch=str(scratch), disk_bytes=100 * 2**20, disk_entries=2000).report()

    assert report["cause"] == "disk"
    assert report["signal"] == signal.SIGKILL


@pytest.mark.parametrize("work", ["return", "nest_folders", "fill_disk_with_names"])
def test_the_scratch_folder_goes_with_the_worker(keep: Any, tmp_path: Path, work: str) -> None:
    scratch = tmp_path / "scratch"
    kept = keep(work, scratch=str(scratch), disk_entries=2000)
    kept.report()

    kept.keeper.wait(DEADLINE_S)

    assert not scratch.exists()


@pytest.mark.parametrize("work", ["hog", "hog_in_children", "hog_in_memfds"])
def test_a_memory_hog_is_ended(keep: Any, work: str) -> None:
    report = keep(work, memory_bytes=200 * 2**20).report()

    assert report["cause"] == "memory"
    assert report["signal"] == signal.SIGKILL
    assert report["max_rss_bytes"] > 200 * 2**20


def test_memory_that_processes_share_counts_once(keep: Any) -> None:
    assert keep("share").report()["exit"] == 0


@pytest.mark.parametrize("work", ["ignore_signals", "stop_itself"])
def test_a_worker_that_will_not_end_is_ended_on_demand(keep: Any, work: str) -> None:
    kept = keep(work)
    kept.await_ready()

    kept.keeper.send_signal(signal.SIGTERM)

    report = kept.report()
    assert (report["exit"], report["signal"], report["cause"]) == (None, signal.SIGKILL, "killed")


def test_a_worker_does_not_outlive_its_keeper(keep: Any) -> None:
    kept = keep("ignore_signals")
    kept.await_ready()

    kept.keeper.send_signal(signal.SIGKILL)

    kept.await_nobody()


def test_nothing_outlives_the_keepers_parent(keep: Any) -> None:
    kept = keep("daemon_of_children", grandparent=True)
    kept.await_ready(1)

    kept.keeper.send_signal(signal.SIGKILL)

    kept.await_nobody()


def test_nothing_goes_on_where_nobody_reads_the_report(keep: Any) -> None:
    kept = keep("ignore_signals")
    kept.await_ready()

    os.dup2(kept.alive, kept.status)

    kept.await_nobody()


@pytest.mark.parametrize("work", ["has_no_status_descriptor", "has_a_session", "has_clean_signals", "both_ways"])
def test_a_worker_finds_what_it_should(keep: Any, work: str) -> None:
    """It cannot write a report, its group is its own, and it inherits no blocked signal."""
    assert keep(work).report()["exit"] == 0


def test_a_confined_worker_cannot_end_or_stop_its_keeper(keep: Any) -> None:
    report = keep("attack").report()

    assert report["exit"] == 4, "not every signal was refused"


def test_who_reaps_the_dead_takes_the_processor_from_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """At a real-time priority the kernel span for a second while it reaped: whom it waited for had no processor."""
    did: list[object] = []
    kept = keeper.Keeper(status_fd=0, limits=keeper.Limits(max_processes=8))
    kept._fenced = True

    def reap() -> None:
        did.append("reap")
        kept._alone = True

    monkeypatch.setattr(keeper, "_send", lambda *_: did.append("kill"))
    monkeypatch.setattr(os, "sched_setscheduler", lambda _pid, policy, _parameter: did.append(policy))
    monkeypatch.setattr(signal, "sigtimedwait", lambda *_: None)
    monkeypatch.setattr(kept, "_reap", reap)

    kept._end_all()

    assert did == ["kill", os.SCHED_OTHER, "reap"]
