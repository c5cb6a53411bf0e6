"""What a process that nobody trusts says: the one place where a field of its messages is read.

A field that is missing has its default; one of another type, or beyond its limits, is a forgery. What is read is safe
to calculate with and to print: numbers are finite and of a size that sums and quotients of them stay finite, texts are
cut and hold no half of a surrogate pair.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from kbench.protocol import Message, ProtocolError

Parsed = TypeVar("Parsed")

# What an exception may say of itself, and what a name may have.
TEXT_LIMIT, NAME_LIMIT = 6000, 120
ITEMS_LIMIT = 10_000
# Seconds, bytes, hertz and counts are all far below.
_NUMBER_LIMIT = 2**63


class Claims:
    """One message of a process that nobody trusts; `refuse` makes the exception for what is of no known form."""

    def __init__(self, message: Message, refuse: Callable[[str], Exception] = ProtocolError) -> None:
        self._message = message
        self._refuse = refuse

    def has(self, name: str) -> bool:
        """Say whether there is a field of that name that is not null."""
        return self._message.get(name) is not None

    def flag(self, name: str) -> bool:
        """Read a truth value; false where there is none."""
        return self.parsed(name, _flag) if self.has(name) else False

    def text(self, name: str, limit: int = TEXT_LIMIT) -> str:
        """Read a text; empty where there is none."""
        return self.parsed(name, _text)[:limit] if self.has(name) else ""

    def number(self, name: str) -> float | None:
        """Read a number that is not negative; None where there is none."""
        return self.parsed(name, _number) if self.has(name) else None

    def flags(self, name: str) -> list[bool]:
        """Read a list of truth values."""
        return self._list(name, _flag)

    def texts(self, name: str, count: int = 100, limit: int = NAME_LIMIT) -> list[str]:
        """Read a list of texts, the first of them."""
        return [text[:limit] for text in self._list(name, _text)[:count]]

    def numbers(self, name: str) -> list[float]:
        """Read a list of numbers that are not negative."""
        return self._list(name, _number)

    def named(self, name: str) -> dict[str, str]:
        """Read texts by their names."""
        return self.parsed(name, _named) if self.has(name) else {}

    def parsed(self, name: str, parse: Callable[[object], Parsed]) -> Parsed:
        """Read what a field holds by a function of one's own; whatever it raises is the sender's fault."""
        try:
            return parse(self._message.get(name))
        except Exception as error:  # noqa: BLE001 - nothing that a stranger sends may end its reader
            raise self._refuse(f"`{name}` has no known form: {readable(str(error))[:NAME_LIMIT]}") from None

    def _list(self, name: str, parse: Callable[[object], Parsed]) -> list[Parsed]:
        return self.parsed(name, lambda claim: [parse(item) for item in _items(claim)]) if self.has(name) else []


def readable(text: str) -> str:
    """Replace what no encoding has: halves of surrogate pairs."""
    return text.encode("utf-8", "replace").decode()


def _flag(claim: object) -> bool:
    if not isinstance(claim, bool):
        raise TypeError("no truth value")
    return claim


def _text(claim: object) -> str:
    if not isinstance(claim, str):
        raise TypeError("no text")
    return readable(claim)


def _number(claim: object) -> float:
    if not isinstance(claim, bool | int | float) or not 0 <= claim <= _NUMBER_LIMIT:
        raise ValueError("no number that can be")
    return claim


def _items(claim: object) -> list[object]:
    if not isinstance(claim, list) or len(claim) > ITEMS_LIMIT:
        raise TypeError("no list")
    return claim


def _named(claim: object) -> dict[str, str]:
    if not isinstance(claim, dict):
        raise TypeError("no texts by name")
    return {name: _text(text) for name, text in claim.items()}
