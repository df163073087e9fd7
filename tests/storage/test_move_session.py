"""A session of a move whose connection is lost says that the store is away, whatever it was about to do."""

import pytest

from duly.storage.errors import StoreUnavailableError
from duly.storage.move_session import MoveSession


async def test_a_connection_that_is_lost_before_the_commit(database_url: str) -> None:
    """The library then raises where the commit is called, not where it is waited for."""
    async with MoveSession(database_url, 0) as session:
        with pytest.raises(StoreUnavailableError):
            async with session.transaction():
                session.terminate()
