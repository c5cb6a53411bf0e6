"""The parent half of the process boundary: start workers, listen to them, see them end, end them."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from kbench import folders, warm
from kbench.errors import MachineError
from kbench.protocol import Closed, LineBuffer, Message, ProtocolError, decode, encode

# The last of what a worker printed; the record keeps so much of it.
TAIL_BYTES = 4096
# More output than this is a flood: the process is ended.
OUTPUT_LIMIT_BYTES = 256 * 2**20
# Importing torch takes 1 to 5 s; on a cold disk a minute was seen.
_ZYGOTE_START_S = 180.0
# The keeper answers SIGTERM within a fraction of a second; past this it is killed.
_END_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a worker's process ended; `cause` is `memory`, `processes`, `disk`, `killed`, `flood`, `lost` or empty."""

    exit: int | None = None
    signal: int | None = None
    cause: str = ""
    max_rss_bytes: int = 0
    leftovers: int = 0

    def describe(self) -> str:
        """Say it in words: `SIGSEGV`, `exit code 0`."""
        if self.signal is not None:
            try:
                return signal.Signals(self.signal).name
            except ValueError:
                return f"signal {self.signal}"
        return f"exit code {self.exit}" if self.exit is not None else "an unknown end"


class ParentChannel:
    """The parent's end of a conversation, for asyncio."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._socket = sock
        self._buffer = LineBuffer()

    async def send(self, message: Mapping[str, Any], fds: Sequence[int] = ()) -> None:
        """Send one message, and descriptors with it.

        Raises:
            Closed: nobody listens any more.
        """
        data = memoryview(encode(message))
        loop = asyncio.get_running_loop()
        try:
            if fds:
                sent = socket.send_fds(self._socket, [data], list(fds))
                data = data[sent:]
            await loop.sock_sendall(self._socket, data)
        except OSError as error:
            raise Closed(f"the worker has gone: {error}") from None

    async def receive(self) -> Message:
        """Wait for one message.

        Raises:
            Closed: the worker has gone.
            ProtocolError: what arrived is no message.
        """
        loop = asyncio.get_running_loop()
        while (line := self._buffer.next_line()) is None:
            try:
                data = await loop.sock_recv(self._socket, 2**16)
            except OSError as error:
                raise Closed(f"the worker has gone: {error}") from None
            if not data:
                raise Closed("the worker has gone")
            self._buffer.feed(data)
        return decode(line)

    def close(self) -> None:
        """Hang up."""
        self._socket.close()


class Worker:
    """A process that the zygote forked for us, with its output and its end."""

    def __init__(self, zygote: Zygote, number: int, output_fd: int, status_fd: int) -> None:
        self._zygote = zygote
        self._number = number
        self._output = bytearray()
        self._output_bytes = 0
        self._status = bytearray()
        self._flooded = False
        self.ended: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()
        self._output_fd: int | None = output_fd
        self._watch(output_fd, self._on_output)
        self._watch(status_fd, self._on_status)

    @staticmethod
    def _watch(fd: int, on_data: Callable[[bytes], None]) -> None:
        loop = asyncio.get_running_loop()
        os.set_blocking(fd, False)

        def read() -> None:
            try:
                data = os.read(fd, 2**18)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                loop.remove_reader(fd)
                os.close(fd)
            on_data(data)

        loop.add_reader(fd, read)

    def _on_output(self, data: bytes) -> None:
        if not data:
            # Closed, and its number may be another's from now on.
            self._output_fd = None
        self._output_bytes += len(data)
        self._output += data
        del self._output[:-TAIL_BYTES]
        if self._output_bytes > OUTPUT_LIMIT_BYTES and not self._flooded:
            self._flooded = True
            self._zygote.end(self._number)

    def _on_status(self, data: bytes) -> None:
        self._status += data
        if not data and not self.ended.done():
            self.ended.set_result(self._parse_status())

    def _parse_status(self) -> Ending:
        try:
            fields = json.loads(self._status)
            ending = Ending(**{name: fields[name] for name in ("exit", "signal", "cause", "max_rss_bytes", "leftovers")})
        except (ValueError, KeyError, TypeError):
            # Its keeper has gone without a word: the zygote ends what was below it.
            return Ending(cause="lost")
        if self._flooded:
            return Ending(cause="flood", max_rss_bytes=ending.max_rss_bytes)
        return ending

    @property
    def is_lost(self) -> bool:
        """Whether its keeper has gone without a report, and cleans up no more."""
        return self.ended.done() and self.ended.result().cause == "lost"

    @property
    def output_tail(self) -> str:
        """The last of what it printed, as text, up to now: also what waits in the pipe."""
        with contextlib.suppress(BlockingIOError):
            # A pipe holds 64 kB; who writes on and on is not waited for.
            if self._output_fd is not None and (data := os.read(self._output_fd, 2**18)):
                self._on_output(data)
        return self._output.decode("utf-8", errors="replace")

    async def end(self, *, grace_s: float = 0.0) -> Ending:
        """End it and everything that it started, or let it end by itself within `grace_s`; how it ended."""
        if grace_s:
            await asyncio.wait({self.ended}, timeout=grace_s)
        if not self.ended.done():
            self._zygote.end(self._number)
        try:
            return await asyncio.wait_for(asyncio.shield(self.ended), _END_S)
        except TimeoutError:
            return Ending(cause="killed")


class Zygote:
    """Forks workers in milliseconds; ends with the parent, whatever happens to it.

    With `warm_s` it comes from a process that an earlier command left behind, where there is one that will do, or
    leaves one behind itself, which ends after so many seconds without a command.
    """

    def __init__(self, *, warm_s: float = 0.0) -> None:
        self._warm_s = warm_s
        self._process: subprocess.Popen[bytes] | None = None
        self._pid = 0
        self._is_ready = False
        self._socket: socket.socket | None = None
        self._numbers = itertools.count(1)
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the zygote

    async def start(self) -> None:
        """Start it and wait until torch is there.

        Raises:
            MachineError: it did not come up; its own last words are in the message.
        """
        if self._warm_s and await self._start_warm():
            return
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket = ours
        environment = _environment()
        left = warm.offer(environment, self._warm_s) if self._warm_s else None
        self._process = subprocess.Popen(  # noqa: ASYNC220, S603 - our own interpreter and module
            [sys.executable, "-m", "kbench.worker.zygote", str(theirs.fileno()), *([json.dumps(left)] if left else [])],
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            env=environment,
        )
        theirs.close()
        try:
            await asyncio.wait_for(ParentChannel(ours).receive(), _ZYGOTE_START_S)
            self._is_ready = True
        except (Closed, TimeoutError):
            words = self._last_words()
            await self.close()
            raise MachineError(
                f"the worker process did not start: {words or 'it said nothing'}",
                hint="run `kbench doctor`; it tests torch and names what is missing",
            ) from None

    async def _start_warm(self) -> bool:
        """Have the warm process fork a zygote; whether it did."""
        connected = warm.connect(_environment(), self._log.fileno())
        if connected is None:
            return False
        try:
            answer = await asyncio.wait_for(ParentChannel(connected).receive(), warm.ANSWER_S)
            if answer.get("event") == "ready":
                self._socket, self._pid = connected, int(answer["pid"])
                return True
        except TimeoutError:
            # It is stopped, or worse; the next command must not wait for it, too.
            warm.kill(connected)
        except (ProtocolError, KeyError, TypeError, ValueError):
            pass
        connected.close()
        return False

    def spawn(self, role: str, args: Mapping[str, Any], fds: Sequence[int] = ()) -> Worker:
        """Fork a worker; `fds` are its own ends of channels, closed here.

        Raises:
            MachineError: the zygote has gone.
        """
        assert self._socket is not None
        number = next(self._numbers)
        output_read, output_write = os.pipe2(os.O_CLOEXEC)
        status_read, status_write = os.pipe2(os.O_CLOEXEC)
        message = encode({"op": "spawn", "id": number, "role": role, "args": args})
        try:
            self._socket.setblocking(True)
            sent = socket.send_fds(self._socket, [message], [output_write, status_write, *fds])
            self._socket.sendall(memoryview(message)[sent:])
        except OSError as error:
            raise MachineError(f"the worker process has gone: {error}; {self._last_words()}") from None
        finally:
            for fd in (output_write, status_write, *fds):
                os.close(fd)
        return Worker(self, number, output_read, status_read)

    def end(self, number: int) -> None:
        """Ask for the end of a worker and all that it started."""
        with contextlib.suppress(OSError):
            assert self._socket is not None
            self._socket.sendall(encode({"op": "end", "id": number}))

    async def close(self) -> None:
        """End every worker and the zygote itself."""
        if self._pid and self._socket is not None:
            await self._close_warm(self._socket)
        elif self._socket is not None:
            self._socket.close()
        if self._process is not None and not self._is_ready:
            # It imports for seconds, in which it hears nothing, and has nobody to end.
            self._process.kill()
        for _ in range(100):
            if self._process is None or self._process.poll() is not None:
                break
            await asyncio.sleep(0.01)
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._log.close()

    async def _close_warm(self, connected: socket.socket) -> None:
        """End a zygote that is no child of this process: its end of the socket tells when it has gone."""
        with contextlib.suppress(OSError):
            connected.shutdown(socket.SHUT_WR)
            connected.setblocking(False)
        try:
            async with asyncio.timeout(1.0):
                while await asyncio.get_running_loop().sock_recv(connected, 4096):
                    pass
        except TimeoutError:
            with contextlib.suppress(OSError):
                os.kill(self._pid, signal.SIGKILL)
        except OSError:
            pass
        connected.close()

    def _last_words(self) -> str:
        self._log.seek(max(0, self._log.seek(0, os.SEEK_END) - TAIL_BYTES))
        lines = self._log.read().decode("utf-8", errors="replace").strip().splitlines()
        return lines[-1] if lines else ""


def channel_pair() -> tuple[ParentChannel, int]:
    """A channel: the parent's end, and the descriptor of the worker's end to pass to `spawn`."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    return ParentChannel(ours), theirs.detach()


def direct_pair() -> tuple[int, int]:
    """A channel between two workers: both ends as descriptors."""
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    return one.detach(), other.detach()


class Scratch:
    """A private folder for one candidate: `own`, where it may do what it wants, and `given`, which it may only read.

    The keeper makes it before the candidate and removes it after it, so that none is left whenever this process is killed.
    """

    def __init__(self) -> None:
        self.path = Path(tempfile.gettempdir(), f"kbench-{secrets.token_hex(8)}")
        self.own = self.path / folders.OWN
        self.given = self.path / folders.GIVEN

    def make(self) -> Self:
        """Make it where no keeper does.

        Raises:
            OSError: it cannot be made.
        """
        folders.make(self.path)
        return self

    def give(self, file: Path) -> Path:
        """Copy a file to where the candidate may read it; the place of the copy.

        Raises:
            OSError: it cannot be copied.
        """
        folder = Path(tempfile.mkdtemp(dir=self.given))
        return Path(shutil.copy(file, folder / file.name))

    def remove(self) -> None:
        """Remove it, where no keeper has done so; what cannot be removed stays, and that is all."""
        folders.remove(self.path)


def _environment() -> dict[str, str]:
    """The workers' environment: the user's, with what would make two runs differ taken out."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "PYTHONSTARTUP"))}
    # After a parallel region OpenMP's threads spin for milliseconds, on the cores of whoever is timed next; beside
    # any other busy process that turned 0.2 ms into 14 ms. Both sides of a comparison get the same setting.
    environment.setdefault("GOMP_SPINCOUNT", "10000")
    # The same in milliseconds for Intel's and LLVM's OpenMP, whose threads spin for 200.
    environment.setdefault("KMP_BLOCKTIME", "1")
    # Importing torch's extension builder asks whether there is a GPU. Asked of CUDA, no fork could use it any more;
    # asked of the management library, every fork would share its open device. So there is none to ask about, until
    # a worker names its own.
    environment["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    environment["CUDA_VISIBLE_DEVICES"] = ""
    # A candidate that prints must not wait for a full buffer: its last words are wanted after a crash.
    environment["PYTHONUNBUFFERED"] = "1"
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    return environment
