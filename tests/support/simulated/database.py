"""A node's access to the simulated PostgreSQL: `duly.storage.database.Database` to its callers."""

from collections.abc import Awaitable, Callable
from typing import Any

from duly.storage.database import Database
from duly.storage.errors import Doubt, StoreUnavailableError
from simulated.link import Link, NoAnswerError, NotSentError, Server
from simulated.store import Record, Store

_GIVE_UP_S = 6.5
"""As the product's: statement_timeout and a margin for the answer."""


class SimulatedDatabase:
    """Statements by name. One that was begun goes on, whatever becomes of its caller."""

    sql = staticmethod(Database.sql)
    size = 8
    """As `Database.size`."""

    def __init__(self, server: Server, store: Store, link: Link) -> None:
        self._server = server
        self._store = store
        self._link = link

    async def fetch(self, name: str, *args: Any) -> list[Record]:
        """As `Database.fetch`."""
        result: list[Record] = await self._call(f"sql {name}", lambda: self._store.run(name, args))
        return result

    async def run(self, work: Callable[[Any], Awaitable[Any]], name: str | None = None) -> Any:
        """As `Database.run`: a transaction happens in one moment."""
        return await self._call("sql transaction", lambda: self._store.transaction(work))

    async def _call(self, what: str, work: Callable[[], Any]) -> Any:
        try:
            return await self._server.call(self._link, what, work, give_up_s=_GIVE_UP_S)
        except NotSentError as error:
            raise StoreUnavailableError(str(error)) from error
        except NoAnswerError as error:
            doubt = Doubt(0)
            doubt.over = error.ended
            raise StoreUnavailableError(str(error), doubt=doubt) from error
