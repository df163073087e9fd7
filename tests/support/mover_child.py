"""Moves slots in a process of its own, which stops dead at a step: `mover_child STEP URLS FIRST LAST`.

It says `at STEP` and stands still there, to be killed, or to go on (SIGCONT). At its end it says `moved`.
"""

import asyncio
import os
import signal
import sys
from typing import Any

from moves_rig import move

from duly.storage.move_session import MoveSession

STEPS = {
    "watching": ("move_watch", 0, 1),
    "copying": ("move_keys_after", 0, 1),
    "caught up": ("move_fence", 0, 1),
    "fenced": ("move_wait_for_writers", 0, 1),
    "to be handed": ("move_take", 1, 1),
    "taken": ("move_moved", 0, 1),
    "clearing": ("move_delete_runs", 0, 1),
    "unwatching": ("move_unwatch_table", 0, 2),
}
"""Each with the statement before which it is, in which store, and for which time it comes there."""


def stop_at(step: str) -> None:
    """Whoever moves slots in this process stands still before this statement."""
    name, store, times = STEPS[step]
    seen = 0
    real = MoveSession.fetch, MoveSession.value

    def look(session: MoveSession, statement: str) -> None:
        nonlocal seen
        if statement == name and session.number == store:
            seen += 1
            if seen == times:
                print(f"at {step}", flush=True)
                os.kill(os.getpid(), signal.SIGSTOP)

    async def fetch(self: MoveSession, statement: str, *args: Any, **options: Any) -> list[Any]:
        look(self, statement)
        return await real[0](self, statement, *args, **options)

    async def value(self: MoveSession, statement: str, *args: Any, **options: Any) -> Any:
        look(self, statement)
        return await real[1](self, statement, *args, **options)

    setattr(MoveSession, "fetch", fetch)  # noqa: B010 - of a class, which type checkers refuse
    setattr(MoveSession, "value", value)  # noqa: B010


if __name__ == "__main__":
    step, urls, first, last = sys.argv[1:]
    stop_at(step)
    asyncio.run(move(urls.split(","), range(int(first), int(last) + 1), settle_s=1.0))
    print("moved", flush=True)
