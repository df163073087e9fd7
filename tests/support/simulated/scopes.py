"""AnyIO keeps the scopes within a cancel scope in a set, in the order of their addresses. That differs
from run to run, and with it the order in which a cancellation arrives. In a world it is by age."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from anyio._backends._asyncio import CancelScope

_init = CancelScope.__init__


class _ByAge(dict[Any, None]):
    """As much of a set as is used."""

    def add(self, scope: Any) -> None:
        self[scope] = None

    def remove(self, scope: Any) -> None:
        del self[scope]

    def discard(self, scope: Any) -> None:
        self.pop(scope, None)


def _init_by_age(self: CancelScope, *args: Any, **kwargs: Any) -> None:
    _init(self, *args, **kwargs)
    self._child_scopes = _ByAge()  # type: ignore[assignment]


@contextmanager
def scopes_by_age() -> Iterator[None]:
    """Within the block every new scope is so."""
    with patch.object(CancelScope, "__init__", _init_by_age):
        yield
