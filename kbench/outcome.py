"""What did a run come to, and with which code does it exit?"""

from __future__ import annotations

from dataclasses import dataclass

EXIT_PASS = 0
EXIT_FAIL = 1
EXIT_NOTHING = 3
EXIT_ERROR = 4
EXIT_BUG = 5
EXIT_INTERRUPTED = 130


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How many candidates came to each status, and how the run ended."""

    passed: int = 0
    failed: int = 0
    errors: int = 0
    skipped: int = 0
    interrupted: bool = False
    internal_error: bool = False
    strict: bool = False

    @property
    def exit_code(self) -> int:
        """The first that holds: interrupted, a bug in kbench, an error, a failure, nothing that passed."""
        if self.interrupted:
            return EXIT_INTERRUPTED
        if self.internal_error:
            return EXIT_BUG
        if self.errors:
            return EXIT_ERROR
        if self.failed or (self.strict and self.skipped):
            return EXIT_FAIL
        return EXIT_PASS if self.passed else EXIT_NOTHING
