"""Leases between real processes: alone is alone, a dead holder is none, and nobody waits for ever."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kbench.engines import gate
from kbench.engines.gate import Gate, Lease
from kbench.errors import MachineError

ROOT = Path(__file__).parents[2]
# Far above what any of this takes; only a hang gets there.
DEADLINE_S = 60

HOLDER = """
import asyncio, sys
from pathlib import Path
from kbench.engines.gate import Lease

async def main():
    async with Lease("cpu", Path(sys.argv[1])).hold(alone=sys.argv[2] == "alone"):
        print("held", flush=True)
        sys.stdin.read()

asyncio.run(main())
"""


@contextmanager
def holder(folder: Path, kind: str) -> Iterator[subprocess.Popen[str]]:
    """Another process, once it holds the device; it lets go when its input ends."""
    command = [sys.executable, "-c", HOLDER, str(folder), kind]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


async def is_free(folder: Path, *, alone: bool) -> bool:
    """Whether the device can be had without waiting for anybody."""
    lease = Lease("cpu", folder)
    try:
        async with asyncio.timeout(0.2), lease.hold(alone=alone):
            return True
    except TimeoutError:
        return False


def test_who_times_alone_is_alone_and_who_verifies_is_not(tmp_path: Path) -> None:
    folder = tmp_path / "leases"
    with holder(folder, "alone"):
        assert not asyncio.run(is_free(folder, alone=True))
        assert not asyncio.run(is_free(folder, alone=False))
    with holder(folder, "shared"):
        assert not asyncio.run(is_free(folder, alone=True))
        assert asyncio.run(is_free(folder, alone=False))


def test_a_dead_holder_holds_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "leases"
    with holder(folder, "alone") as process:
        process.send_signal(signal.SIGKILL)
        process.wait(DEADLINE_S)
        assert asyncio.run(is_free(folder, alone=True))


def test_of_two_lanes_that_share_a_device_the_first_to_end_does_not_free_it(tmp_path: Path) -> None:
    folder = tmp_path / "leases"

    async def lanes() -> tuple[bool, bool]:
        lease = Lease("cpu", folder)
        async with lease.hold(alone=False):
            async with lease.hold(alone=False):
                pass
            while_one_works = await is_free(folder, alone=True)
        return while_one_works, await is_free(folder, alone=True)

    assert asyncio.run(lanes()) == (False, True)


def test_who_waits_to_time_goes_before_who_comes_later_to_verify(tmp_path: Path) -> None:
    """Otherwise a run over thousands of candidates, some of which always verify, would let no other run time."""
    folder = tmp_path / "leases"

    async def scene() -> list[str]:
        order: list[str] = []
        lease = Lease("cpu", folder)

        async def take(name: str, *, alone: bool) -> None:
            async with lease.hold(alone=alone):
                order.append(name)

        async with lease.hold(alone=False):
            timing = asyncio.create_task(take("time", alone=True))
            # It has come to wait for the device when it holds the turn.
            while await is_free(folder, alone=False):
                await asyncio.sleep(0)
            later = asyncio.create_task(take("verify", alone=False))
            for _ in range(10):
                await asyncio.sleep(0)
            assert order == []
        await asyncio.wait_for(asyncio.gather(timing, later), DEADLINE_S)
        return order

    assert asyncio.run(scene()) == ["time", "verify"]


@pytest.mark.parametrize(("held", "alone", "work"), [("alone", False, "timing"), ("alone", True, "timing"), ("shared", True, "verifying")])
def test_who_waits_is_told_once_for_whom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: str, alone: bool, work: str) -> None:
    monkeypatch.setattr(gate, "_TELL_AFTER_S", 0.0)

    async def scene(process: subprocess.Popen[str]) -> list[str]:
        told: asyncio.Queue[str] = asyncio.Queue()
        lease = Lease("cpu", tmp_path / "leases", tell=told.put_nowait)

        async def lane() -> None:
            async with lease.hold(alone=alone):
                pass

        lanes = [asyncio.create_task(lane()) for _ in range(2)]
        texts = [await told.get()]
        process.kill()
        await asyncio.gather(*lanes)
        while not told.empty():
            texts.append(told.get_nowait())
        return texts

    with holder(tmp_path / "leases", held) as process:
        (text,) = asyncio.run(asyncio.wait_for(scene(process), DEADLINE_S))

    assert text.startswith(f"waiting for another kbench (process {process.pid}: {sys.executable} -c")
    assert text.endswith(f") to finish {work} on this CPU")


def test_who_need_not_wait_is_told_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "_TELL_AFTER_S", 0.0)
    told: list[str] = []

    async def scene() -> None:
        async with Lease("cpu", tmp_path / "leases", tell=told.append).hold(alone=True):
            # What was to be told would have been by then.
            await asyncio.get_running_loop().run_in_executor(None, os.getpid)

    with holder(tmp_path / "leases", "shared") as process:
        process.kill()
        process.wait(DEADLINE_S)
        asyncio.run(scene())

    assert told == []


def test_every_user_can_take_a_lease_that_another_one_made(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        Lease("cpu", tmp_path / "leases")
    finally:
        os.umask(before)

    assert stat.S_IMODE((tmp_path / "leases").stat().st_mode) == 0o1777
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "leases").iterdir()} == {0o644}


def test_a_lease_that_cannot_be_opened_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "leases").write_text("mine")

    with pytest.raises(MachineError, match=r"cannot open the lease of `cpu` in .*leases: not a directory"):
        Lease("cpu", tmp_path / "leases")


def test_a_link_in_the_place_of_a_lease_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "leases").mkdir()
    (tmp_path / "leases/cpu.device").symlink_to(tmp_path / "precious")

    with pytest.raises(MachineError):
        Lease("cpu", tmp_path / "leases")
    assert not (tmp_path / "precious").exists()


def test_in_one_process_who_waits_to_time_goes_before_who_comes_later() -> None:
    async def scene() -> list[str]:
        order: list[str] = []
        gate = Gate()

        async def verify(name: str) -> None:
            async with gate.shared():
                order.append(name)

        async def time() -> None:
            async with gate.exclusive():
                order.append("time")

        async with gate.shared():
            timing = asyncio.create_task(time())
            await asyncio.sleep(0)
            later = asyncio.create_task(verify("later"))
            await asyncio.sleep(0)
        await asyncio.gather(timing, later)
        return order

    assert asyncio.run(scene()) == ["time", "later"]


def test_who_gives_up_waiting_to_time_keeps_nobody_out() -> None:
    async def scene() -> None:
        gate = Gate()
        async with gate.shared():
            timing = asyncio.create_task(gate.exclusive().__aenter__())
            await asyncio.sleep(0)
            timing.cancel()
            await asyncio.wait({timing})
            async with gate.shared():
                pass

    asyncio.run(asyncio.wait_for(scene(), DEADLINE_S))


def test_gpus_are_timed_side_by_side_each_alone_and_the_cpu_alone_of_all() -> None:
    async def may_enter(gate: Gate, device: str | None) -> bool:
        try:
            async with asyncio.timeout(0.05), gate.exclusive(device) if device else gate.shared():
                return True
        except TimeoutError:
            return False

    async def run() -> None:
        gate = Gate()
        async with gate.exclusive("cuda:0"):
            found = [await may_enter(gate, device) for device in ("cuda:1", "cuda:0", "cpu", None)]
            assert found == [True, False, False, False]
        async with gate.exclusive("cpu"):
            assert [await may_enter(gate, device) for device in ("cuda:1", "cpu", None)] == [False, False, False]
        async with gate.shared():
            assert [await may_enter(gate, device) for device in ("cuda:1", "cpu", None)] == [False, False, True]
        # Who gave up waiting keeps nobody out.
        assert await may_enter(gate, "cpu")

    asyncio.run(run())
