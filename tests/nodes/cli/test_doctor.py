"""What `duly doctor` makes of what the nodes say of themselves."""

from datetime import UTC, datetime

import msgspec

from duly.actors.node_info import SCHEMA, NodeInfo
from duly.nodes.cli.doctor import about_nodes


def _words(schema: int | None) -> bytes:
    return msgspec.json.encode(
        NodeInfo("h", 1, datetime(2026, 11, 30, tzinfo=UTC), 1, schema=schema)
    )


def test_nodes_of_this_version_and_newer_ones_are_as_they_should_be() -> None:
    found = about_nodes({"a": _words(SCHEMA), "b": _words(SCHEMA + 1)})
    assert (found.level, found.said) == ("ok", "2 alive")


def test_older_nodes_are_named() -> None:
    alive = {"c": _words(None), "b": _words(SCHEMA - 1), "a": _words(SCHEMA), "d": b"other words"}
    found = about_nodes(alive)
    assert (found.level, found.said) == ("warn", "4 alive, of an older version are: b, c, d")
    assert found.advice == "finish the upgrade: replace them by nodes of this version"
