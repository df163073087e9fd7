"""A client of Redis for which a call is cheap: words are packed in C, and the library's own repeats and telemetry left out.

`storage.redis.call` bounds every call in time; nothing is repeated here in any case.
"""

from typing import Any

import hiredis
from redis.asyncio import Redis


class Client(Redis):
    """As `Redis`, but for what `execute_command` does around a call."""

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        """Run one command; its answer is shaped as the library shapes it."""
        if options:
            return await super().execute_command(*args, **options)  # type: ignore[no-untyped-call]
        pool = self.connection_pool
        connection = await pool.get_connection()  # type: ignore[no-untyped-call]
        try:
            # Each closes the connection if it is cancelled or fails: no later call may get this answer.
            await connection.send_packed_command(_packed(connection, args))
            answer = await connection.read_response()
        finally:
            await pool.release(connection)
        shape = self.response_callbacks.get(args[0])
        return answer if shape is None else shape(answer)


def _packed(connection: Any, words: tuple[Any, ...]) -> Any:
    if " " not in words[0]:  # else there are several words in it
        try:
            return hiredis.pack_command(words)
        except UnicodeEncodeError:
            pass  # a name that others chose, which is no text: the library knows how it was read
    return connection.pack_command(*words)
