"""Follow-ups are taken once every live node knows of them."""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import msgspec
import pytest

from duly.actors.context import Context
from duly.actors.node_info import NodeInfo
from duly.nodes.api import upgrades
from duly.nodes.api.problems import Problem
from duly.storage.members import Vanished
from duly.storage.submitting import NewTask

NOW = datetime(2026, 11, 30, tzinfo=UTC)
PLAIN = NewTask(
    id=UUID(int=1), type="t", queue="q", payload="1", due=NOW, max_retries=0, backoff="{}", timeout=1.0,
    misfire_grace=None, on_lost="retry", priority=5, key=None, fingerprint=None, tags="{}", own_id=False,
    created_at=NOW, occurrence=NOW,
)  # fmt: skip
ME = {"me": 28}
AT = 1000.0


def _words(schema: int | None) -> bytes:
    return msgspec.json.encode(NodeInfo("h", 1, NOW, 1, schema=schema))


class _Members:
    """`gone`: node -> its schema, when it was missed, and how long it has been silent by Redis."""

    def __init__(
        self, live: dict[str, int | None], gone: dict[str, tuple[int | None, float, float | None]]
    ) -> None:
        self.words = {name: _words(schema) for name, schema in live.items()}
        self.vanished = {
            name: Vanished(_words(schema), at) for name, (schema, at, _) in gone.items()
        }
        self._silent_s = {name: silent_s for name, (_, _, silent_s) in gone.items()}

    async def silent_s(self, name: str) -> float | None:
        if self._silent_s[name] == -1:
            raise TimeoutError("no answer")
        return self._silent_s[name]


def _context(
    live: dict[str, int | None],
    gone: dict[str, tuple[int | None, float, float | None]] | None = None,
) -> Context:
    clock = SimpleNamespace(monotonic=lambda: AT)
    rig = SimpleNamespace(node_id="me", members=_Members(live, gone or {}), clock=clock)
    return cast(Context, rig)


@pytest.mark.parametrize(
    "field",
    [{"on_success": "{}"}, {"on_failure": "{}"}, {"after": "[]"}],
    ids=lambda one: next(iter(one)),
)
async def test_what_an_older_node_would_drop_waits_until_it_is_gone(field: dict[str, Any]) -> None:
    new = [PLAIN, PLAIN._replace(**field)]
    await upgrades.check(_context({**ME, "newer": 30}), new)
    for older in ({"b": 27}, {"b": None}):
        with pytest.raises(
            Problem, match=r"of an older version are, or were just now: b$"
        ) as refused:
            await upgrades.check(_context({**ME, **older}), new)
        assert (refused.value.status, refused.value.headers["Retry-After"]) == (503, "1")


async def test_many_older_nodes_are_not_all_named() -> None:
    many: dict[str, int | None] = {f"n{n}": None for n in range(9)}
    with pytest.raises(Problem, match="n0, n1, n2, n3, n4, …"):
        await upgrades.check(_context({**ME, **many}), [PLAIN._replace(on_success="{}")])


async def test_a_node_that_does_not_know_the_others_yet_takes_none() -> None:
    with pytest.raises(Problem, match="Redis has not said"):
        await upgrades.check(_context({"other": 28}), [PLAIN._replace(after="[]")])


async def test_tasks_without_follow_ups_are_always_taken() -> None:
    await upgrades.check(_context({}), [PLAIN])
    await upgrades.check(_context({**ME, "b": None}), [PLAIN])


@pytest.mark.parametrize(
    ("gone", "is_refused"),
    [
        (
            (27, AT - 29, None),
            True,
        ),  # it has left, and may not have ended yet; or Redis was emptied
        ((27, AT - 31, None), False),
        ((27, AT - 59, 63.0), True),  # it was killed, or stands still
        ((None, AT - 59, 63.0), True),
        ((27, AT - 61, 65.0), False),
        ((28, AT - 1, 5.0), False),
    ],
)
async def test_an_older_node_that_was_there_just_now_counts_for_a_while(
    gone: tuple[int | None, float, float | None], is_refused: bool
) -> None:
    context = _context(dict(ME), {"b": gone})
    if is_refused:
        with pytest.raises(Problem, match=r"or were just now: b$"):
            await upgrades.check(context, [PLAIN._replace(after="[]")])
    else:
        await upgrades.check(context, [PLAIN._replace(after="[]")])


async def test_nothing_is_guessed_of_a_node_that_redis_does_not_tell_of() -> None:
    context = _context(dict(ME), {"b": (27, AT - 31, -1.0)})
    with pytest.raises(Problem, match="whether node b is gone: no answer") as refused:
        await upgrades.check(context, [PLAIN._replace(after="[]")])
    assert refused.value.status == 503
