"""JSON lines over a socket: what arrives is parsed strictly or refused."""

from __future__ import annotations

import json
import os
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbench.protocol import Channel, Closed, Late, LineBuffer, ProtocolError, decode, encode

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(st.dictionaries(st.text(), JSON))
def test_a_message_arrives_as_it_was_sent(message: dict[str, object]) -> None:
    line = encode(message)

    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert decode(line[:-1]) == message


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_a_protocol_error(line: bytes) -> None:
    try:
        assert isinstance(decode(line), dict)
    except ProtocolError:
        pass


@pytest.mark.parametrize("line", [b"[1]", b"3", b'{"a": NaN}', b'{"a": Infinity}', b'{"a": 1', b"\xff", b"[" * 100_000])
def test_what_is_no_object_is_refused(line: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode(line)


@given(st.lists(st.binary(max_size=30).map(lambda b: b.replace(b"\n", b"")), max_size=8), st.integers(1, 7))
def test_lines_come_out_whole_however_they_arrive(lines: list[bytes], step: int) -> None:
    stream = b"".join(line + b"\n" for line in lines)
    buffer = LineBuffer()
    found = []
    for start in range(0, len(stream), step):
        buffer.feed(stream[start : start + step])
        while (line := buffer.next_line()) is not None:
            found.append(line)

    assert found == lines


@given(st.binary(max_size=300), st.lists(st.integers(1, 40), max_size=12), st.integers(1, 60))
def test_whatever_arrives_in_whatever_pieces_is_messages_or_a_protocol_error(stream: bytes, steps: list[int], limit: int) -> None:
    """And never more is kept than the limit and one piece."""
    buffer = LineBuffer(limit_bytes=limit)
    place = 0
    try:
        for step in [*steps, len(stream)]:
            buffer.feed(stream[place : place + step])
            place += step
            while (line := buffer.next_line()) is not None:
                assert isinstance(decode(line), dict)
            assert len(buffer._bytes) <= limit
    except ProtocolError:
        pass


@given(st.lists(JSON, max_size=4), st.binary(max_size=20))
def test_a_real_socket_gives_messages_or_a_protocol_error(values: list[object], garbage: bytes) -> None:
    """A peer that writes what it likes and leaves: no other error, and no waiting for ever."""
    one, other = socket.socketpair()
    with one, other:
        one.sendall(b"".join(json.dumps(value).encode() + b"\n" for value in values) + garbage)
        one.shutdown(socket.SHUT_WR)
        channel = Channel(other)
        received = 0
        with pytest.raises(ProtocolError):
            while True:
                assert isinstance(channel.receive(timeout_s=5), dict)
                received += 1
        assert received <= len(values) + 1


def test_a_line_longer_than_the_limit_is_refused_before_it_ends() -> None:
    buffer = LineBuffer(limit_bytes=10)
    buffer.feed(b"x" * 11)

    with pytest.raises(ProtocolError, match="more than 10 bytes"):
        buffer.next_line()


def test_descriptors_travel_only_to_who_accepts_them() -> None:
    one, other = socket.socketpair()
    read_fd, write_fd = os.pipe()
    with one, other:
        Channel(one).send({"op": "x"}, [write_fd])
        receiver = Channel(other, accept_fds=True)

        assert receiver.receive() == {"op": "x"}
        (fd,) = receiver.take_fds()
        os.write(fd, b"hello")
        assert os.read(read_fd, 5) == b"hello"
    for open_fd in (fd, read_fd, write_fd):
        os.close(open_fd)


def test_a_peer_that_hangs_up_is_closed_and_one_that_is_silent_is_late() -> None:
    one, other = socket.socketpair()
    with other:
        channel = Channel(other)
        with pytest.raises(Late):
            channel.receive(timeout_s=0.0)
        one.close()
        with pytest.raises(Closed):
            channel.receive()
        with pytest.raises(Closed):
            channel.send({"op": "x"})
