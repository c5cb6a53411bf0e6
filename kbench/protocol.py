"""JSON lines with a size limit over a Unix socket: how kbench's processes speak.

Nothing that arrives is ever unpickled or evaluated. File descriptors may ride along with a
message, but only where the receiver asks for them.
"""

from __future__ import annotations

import hashlib
import json
import select
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any

from kbench.errors import KbenchError

# A verdict is a few kB, a build request holds a candidate's sources: more means a broken or hostile peer.
MESSAGE_LIMIT_BYTES = 8 * 2**20
_CHUNK_BYTES = 2**16
_MAX_FDS = 8

Message = dict[str, Any]

# Bound here: a candidate that patches the json module must not break the conversation with the judge.
_dumps = json.dumps
_loads = json.loads


class ProtocolError(KbenchError):
    """What arrived is no message: too long, not JSON, or not an object."""


class Closed(ProtocolError):
    """The other side has gone."""


class Late(ProtocolError):
    """No whole message arrived in time."""


def encode(message: Mapping[str, Any]) -> bytes:
    """Turn a message into one line; infinities and NaN are refused with ValueError."""
    return _dumps(message, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def decode(line: bytes) -> Message:
    """Parse one line strictly.

    Raises:
        ProtocolError: the line is not a JSON object in UTF-8, or is nested too deep.
    """
    try:
        message = _loads(line.decode("utf-8"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"not a message: {str(error)[:200]}") from None
    if not isinstance(message, dict):
        raise ProtocolError("not a message: a JSON object is needed")
    return message


def digest(message: Mapping[str, Any]) -> str:
    """Name a message by its content: 64 hexadecimal digits."""
    return hashlib.sha256(_dumps(message, sort_keys=True).encode()).hexdigest()


def _refuse_constant(text: str) -> float:
    raise ValueError(f"{text} is no JSON number")


class LineBuffer:
    """Cuts a stream of bytes into lines, none longer than the limit."""

    def __init__(self, limit_bytes: int = MESSAGE_LIMIT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._bytes = bytearray()
        self._searched = 0

    def feed(self, data: bytes) -> None:
        """Add what arrived."""
        self._bytes += data

    def next_line(self) -> bytes | None:
        """Take one whole line, without its end; None where there is none yet.

        Raises:
            ProtocolError: what is waiting is longer than the limit.
        """
        end = self._bytes.find(b"\n", self._searched)
        if end < 0:
            self._searched = len(self._bytes)
            if len(self._bytes) > self._limit_bytes:
                raise ProtocolError(f"a message of more than {self._limit_bytes} bytes")
            return None
        line = bytes(self._bytes[:end])
        del self._bytes[: end + 1]
        self._searched = 0
        return line

    @property
    def has_line(self) -> bool:
        """Whether a whole line is waiting."""
        return self._bytes.find(b"\n", self._searched) >= 0


class Channel:
    """A blocking end of the conversation, for the worker half."""

    def __init__(self, sock: socket.socket, *, accept_fds: bool = False) -> None:
        self._socket = sock
        self._accept_fds = accept_fds
        self._buffer = LineBuffer()
        self.fds: list[int] = []

    def fileno(self) -> int:
        """The descriptor, for `select`."""
        return self._socket.fileno()

    def send(self, message: Mapping[str, Any], fds: Sequence[int] = ()) -> None:
        """Send one message, and descriptors with it.

        Raises:
            Closed: nobody listens any more.
        """
        data = encode(message)
        try:
            sent = socket.send_fds(self._socket, [data], list(fds)) if fds else 0
            self._socket.sendall(memoryview(data)[sent:])
        except OSError as error:
            raise Closed(f"the other side has gone: {error}") from None

    def receive(self, timeout_s: float | None = None) -> Message:
        """Wait for one message; descriptors that came along are in `fds`, to be taken by the caller.

        Raises:
            Late: nothing whole arrived within `timeout_s`.
            Closed: the other side has gone.
            ProtocolError: what arrived is no message.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while (line := self._buffer.next_line()) is None:
            if deadline is not None:
                left_s = deadline - time.monotonic()
                if left_s <= 0 or not select.select([self._socket], [], [], left_s)[0]:
                    raise Late(f"no answer in {timeout_s:g} s")
            self._buffer.feed(self._read())
        return decode(line)

    def _read(self) -> bytes:
        try:
            if self._accept_fds:
                data, fds, _, _ = socket.recv_fds(self._socket, _CHUNK_BYTES, _MAX_FDS)
                self.fds += fds
            else:
                data = self._socket.recv(_CHUNK_BYTES)
        except OSError as error:
            raise Closed(f"the other side has gone: {error}") from None
        if not data:
            raise Closed("the other side has gone")
        return data

    @property
    def has_message(self) -> bool:
        """Whether a message has arrived already, which `select` does not see."""
        return self._buffer.has_line

    def take_fds(self) -> list[int]:
        """Hand over the descriptors that have arrived."""
        fds, self.fds = self.fds, []
        return fds

    def close(self) -> None:
        """End the conversation."""
        self._socket.close()
