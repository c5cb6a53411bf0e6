"""What can go wrong outside a candidate, each kind with the exit code of the run.

A candidate that fails is data (`records.Verdict`), never one of these.
"""

from __future__ import annotations


class KbenchError(Exception):
    """Something the user or the machine must mend; shown as one line and a hint.

    `message` says what is wrong, with the value and where; `hint` names the next step.
    """

    exit_code = 4

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(KbenchError):
    """A bad argument, setting or file named by the user (exit code 2)."""

    exit_code = 2


class NothingSelectedError(KbenchError):
    """No candidate matches what was asked for (exit code 3)."""

    exit_code = 3


class MachineError(KbenchError):
    """The machine failed: a lost worker of our own, a full disk, no memory (exit code 4)."""

    exit_code = 4


class ReferenceFileError(KbenchError):
    """A reference cannot be read or run; its candidates get the status `error` (exit code 4)."""

    exit_code = 4


class InternalError(KbenchError):
    """A bug in kbench itself (exit code 5)."""

    exit_code = 5
