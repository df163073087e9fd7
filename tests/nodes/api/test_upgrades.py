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
from duly.storage.submitting import NewTask

NOW = datetime(2026, 11, 30, tzinfo=UTC)
PLAIN = NewTask(
    id=UUID(int=1), type="t", queue="q", payload="1", due=NOW, max_retries=0, backoff="{}", timeout=1.0,
    misfire_grace=None, on_lost="retry", priority=5, key=None, fingerprint=None, tags="{}", own_id=False,
    created_at=NOW, occurrence=NOW,
)  # fmt: skip
ME = {"me": 28}


def _context(schemas: dict[str, int | None]) -> Context:
    words = {
        name: msgspec.json.encode(NodeInfo("h", 1, NOW, 1, schema=schema))
        for name, schema in schemas.items()
    }
    return cast(Context, SimpleNamespace(node_id="me", members=SimpleNamespace(words=words)))


@pytest.mark.parametrize(
    "field",
    [{"on_success": "{}"}, {"on_failure": "{}"}, {"after": "[]"}],
    ids=lambda one: next(iter(one)),
)
def test_what_an_older_node_would_drop_waits_until_it_is_gone(field: dict[str, Any]) -> None:
    new = [PLAIN, PLAIN._replace(**field)]
    upgrades.check(_context({**ME, "newer": 30}), new)
    for older in ({"b": 27}, {"b": None}):
        with pytest.raises(Problem, match="of an older version are: b") as refused:
            upgrades.check(_context({**ME, **older}), new)
        assert (refused.value.status, refused.value.headers["Retry-After"]) == (503, "1")


def test_many_older_nodes_are_not_all_named() -> None:
    many: dict[str, int | None] = {f"n{n}": None for n in range(9)}
    with pytest.raises(Problem, match="n0, n1, n2, n3, n4, …"):
        upgrades.check(_context({**ME, **many}), [PLAIN._replace(on_success="{}")])


def test_a_node_that_does_not_know_the_others_yet_takes_none() -> None:
    with pytest.raises(Problem, match="Redis has not said"):
        upgrades.check(_context({"other": 28}), [PLAIN._replace(after="[]")])


def test_tasks_without_follow_ups_are_always_taken() -> None:
    upgrades.check(_context({}), [PLAIN])
    upgrades.check(_context({**ME, "b": None}), [PLAIN])
