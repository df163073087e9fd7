"""What must not be left half done by Ctrl-C."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any, Final

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def put_off() -> Iterator[None]:
    """Let SIGINT and SIGTERM wait for the end of the block; outside the main thread they never come in between."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[signal.Signals] = []

    def note(number: int, _: Any) -> None:
        came.append(signal.Signals(number))

    before = {number: signal.signal(number, note) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for one in came:
            signal.raise_signal(one)
