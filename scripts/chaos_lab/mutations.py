"""Bugs to plant in a node, so that the checker can be seen to find them. Each undoes one safeguard."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final

from duly.nodes.api.submit import SubmitHandlers
from duly.storage.queries import statements
from duly.storage.streams import Streams
from duly.wheel.clock import ClusterClock

_LATE_S: Final = 30.0
_AHEAD_US: Final = 5_000_000


def plant(bug: str) -> None:
    """Plant it in this process. Raises KeyError for an unknown bug."""
    BUGS[bug]()


def _replace(name: str, old: str, new: str) -> None:
    """Change the statement called `name`, which must hold `old` once."""
    text = statements()[name]
    if text.count(old) != 1:
        raise ValueError(f"the statement {name} does not hold {old!r} once")
    statements()[name] = text.replace(old, new)


def claim_any_version() -> None:
    """A claim takes the task whatever has become of it since it was read."""
    _replace("claim", "where t.id = c.id and t.version = c.version", "where t.id = c.id")


def record_any_token() -> None:
    """A report counts whichever attempt it is of."""
    _replace("complete", "where t.id = r.id and t.version = r.token", "where t.id = r.id")


def start_again() -> None:
    """A confirmed start is granted to whoever asks."""
    _replace("start", "and (start_id is null or start_id = $3)", "and $3::text is not null")


def cancel_nothing() -> None:
    """A cancel is recorded and answered, and the task goes on."""
    _replace("cancel", "delete from tasks\n", "select * from tasks\n")
    _replace("cancel", "\n    returning *\n), moved", "\n), moved")


def answer_before_commit() -> None:
    """A batch is answered first and stored later."""
    insert = SubmitHandlers._insert_all
    later: set[asyncio.Task[Any]] = set()

    async def answer(self: SubmitHandlers, new: list[Any], also: Any = None) -> Any:
        async def store() -> None:
            await asyncio.sleep(_LATE_S)
            await insert(self, new, also)

        task = asyncio.get_running_loop().create_task(store())
        later.add(task)
        return [SimpleNamespace(id=one.id, first_id=None) for one in new]

    SubmitHandlers._insert_all = answer  # type: ignore[method-assign]


def publish_nothing() -> None:
    """What was claimed reaches no stream."""

    publish_some = Streams.publish

    async def publish(self: Streams, queue: str, tasks: Any, *more: Any) -> Any:
        return await publish_some(self, queue, [], *more)

    Streams.publish = publish  # type: ignore[assignment,method-assign]


def skip_unseen() -> None:
    """What came due while an occurrence ran is dropped without a record."""
    _replace("settle", "on s.id = e.id", "on s.id = e.id and false")


def judge_too_early() -> None:
    """An attempt that is tried again is taken for what became of the occurrence."""
    _replace("settle", "case when r.again_at is null or r.next is not null", "case when true")


def clock_ahead() -> None:
    """The node takes the cluster's clock to be later than it is."""
    now_us = ClusterClock.now_us
    ClusterClock.now_us = lambda self: now_us(self) + _AHEAD_US  # type: ignore[method-assign]


BUGS: Final[dict[str, Callable[[], None]]] = {
    bug.__name__: bug
    for bug in (
        claim_any_version, record_any_token, start_again, cancel_nothing, answer_before_commit,
        publish_nothing, clock_ahead, skip_unseen, judge_too_early,
    )
}  # fmt: skip
"""Every bug by its name."""
