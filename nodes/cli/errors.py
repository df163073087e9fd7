"""How a command ends when it cannot go on."""

from typing import NoReturn


class CommandError(Exception):
    """Ends the command: its text goes to standard error, `code` is the exit code.

    1: it was tried and did not work. 2: it was asked for wrongly, so trying again is no use.
    """

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def fail(message: str, code: int = 2) -> NoReturn:
    """Raise `CommandError`."""
    raise CommandError(message, code)
