"""Side effects in the user's own PostgreSQL that happen once, however often the attempt is made.

    async with ctx.exactly_once(connection) as effect:
        await connection.execute("update accounts set …")
        effect.result = {"balance": 90}

The block is a transaction (a savepoint, if one is open already). Its first statement inserts a row
with the key (task, occurrence) into `duly_effects`; so the row and the effect are committed
together, or neither is. Whoever comes second finds the row: a concurrent attempt waits at the
unique key until the first has committed or rolled back. Nothing else is relied upon: not that the
older attempt is dead, not clocks, not Redis.

The steps below are written once, as generators of statements, and driven by async and by plain code.
"""

from collections.abc import AsyncIterator, Generator, Iterator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from datetime import datetime
from types import TracebackType
from typing import Any, Final

from duly.nodes.codec import Codec
from duly.nodes.transactions.drivers import (
    AsyncDriver,
    BlockingDriver,
    async_driver,
    blocking_driver,
)
from duly.nodes.worker.outcomes import (
    AlreadyDone,
    Fail,
    Superseded,
    TooLong,
    kept_result,
    result_json,
)
from duly.storage.queries import statements

_Row = Sequence[Any]
_Steps = Generator[tuple[str, tuple[object, ...]], _Row | None, None]

_TABLE: Final = ("effects_create_table", "effects_create_index")


class Effect:
    """What the block of `exactly_once` is given."""

    __slots__ = ("result",)

    result: Any
    """Set it inside the block: kept beside the effect, and given to every later attempt. JSON of at
    most 256 KiB."""

    def __init__(self) -> None:
        self.result = None


class Guard:
    """The key under which one attempt applies its effect."""

    def __init__(
        self, task_id: str, occurrence: datetime, token: int, codec: Codec | None = None
    ) -> None:
        self._task_id = task_id
        self._occurrence = occurrence.isoformat()
        self._token = token
        self._codec = codec
        self._applied = False

    def before(self) -> _Steps:
        """The steps at the beginning of the transaction.

        Raises AlreadyDone or Superseded if the effect must not be applied (again), RuntimeError if
        this very attempt has applied it, CodecError if the stored result cannot be read.
        """
        key = (self._task_id, self._occurrence, self._token)
        if (yield statements()["effect_claim"], key) is not None:
            return
        found = yield statements()["effect_found"], key
        if found is None:
            raise RuntimeError("the row of duly_effects was deleted at this moment; try again")
        token, result = found
        if token > self._token:
            raise Superseded(f"token {token} has applied an effect; this attempt has {self._token}")
        if token == self._token and self._applied:
            raise RuntimeError(
                "exactly_once was used twice in one attempt: a task has one effect; "
                "put all that belongs to it into one block"
            )
        raise AlreadyDone(None if result is None else kept_result(result, self._codec))

    def after(self, effect: Effect) -> _Steps:
        """The steps at its end. Raises Fail if the result cannot be stored."""
        if effect.result is not None:
            text = _encode(effect.result, self._codec)
            yield statements()["effect_result"], (self._task_id, self._occurrence, text)

    def applied(self) -> None:
        """The block has ended well."""
        self._applied = True


class ExactlyOnce(AbstractAsyncContextManager[Effect], AbstractContextManager[Effect]):
    """The context manager that `Context.exactly_once` returns; entered once."""

    def __init__(self, guard: Guard, connection: object) -> None:
        self._guard = guard
        self._connection = connection
        self._async: AbstractAsyncContextManager[Effect] | None = None
        self._blocking: AbstractContextManager[Effect] | None = None

    async def __aenter__(self) -> Effect:
        driver = async_driver(self._connection)
        try:
            return await self._enter(driver)
        except Exception as error:
            if not _table_is_missing(error):
                raise
        await create_effects_table(self._connection)
        return await self._enter(driver)

    async def _enter(self, driver: AsyncDriver) -> Effect:
        self._async = _around(self._guard, driver)
        return await self._async.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        assert self._async is not None
        return await self._async.__aexit__(kind, error, trace)

    def __enter__(self) -> Effect:
        driver = blocking_driver(self._connection)
        try:
            return self._enter_blocking(driver)
        except Exception as error:
            if not _table_is_missing(error):
                raise
        with driver.transaction():
            _drive_blocking(_make_table(), driver)
        return self._enter_blocking(driver)

    def _enter_blocking(self, driver: BlockingDriver) -> Effect:
        self._blocking = _around_blocking(self._guard, driver)
        return self._blocking.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        assert self._blocking is not None
        return self._blocking.__exit__(kind, error, trace)


async def create_effects_table(connection: object) -> None:
    """Create the table `duly_effects`, unless it is there; `duly effects-sql` prints the same.

    `connection`: of asyncpg, or an async one of psycopg 3. Without this, the first use of
    `exactly_once` creates the table, if the user it is connected as may do so.
    """
    driver = async_driver(connection)
    async with driver.transaction():
        await _drive(_make_table(), driver)


def effects_sql() -> str:
    """The statements that create the table, for a migration tool."""
    return "".join(f"{statements()[name]};\n" for name in _TABLE)


@asynccontextmanager
async def _around(guard: Guard, driver: AsyncDriver) -> AsyncIterator[Effect]:
    effect = Effect()
    async with driver.transaction():
        await _drive(guard.before(), driver)
        yield effect
        await _drive(guard.after(effect), driver)
    guard.applied()


@contextmanager
def _around_blocking(guard: Guard, driver: BlockingDriver) -> Iterator[Effect]:
    effect = Effect()
    with driver.transaction():
        _drive_blocking(guard.before(), driver)
        yield effect
        _drive_blocking(guard.after(effect), driver)
    guard.applied()


async def _drive(steps: _Steps, driver: AsyncDriver) -> None:
    row: _Row | None = None
    while (step := _next(steps, row)) is not None:
        try:
            row = await driver.first_row(*step)
        except Exception as error:
            _explain(step[0], error)
            raise


def _drive_blocking(steps: _Steps, driver: BlockingDriver) -> None:
    row: _Row | None = None
    while (step := _next(steps, row)) is not None:
        try:
            row = driver.first_row(*step)
        except Exception as error:
            _explain(step[0], error)
            raise


def _next(steps: _Steps, row: _Row | None) -> tuple[str, tuple[object, ...]] | None:
    try:
        return steps.send(row)
    except StopIteration:
        return None


def _make_table() -> _Steps:
    exists = yield statements()["effects_table_exists"], ()
    assert exists is not None
    if not exists[0]:
        yield statements()["effects_lock"], ()
        for name in _TABLE:
            yield statements()[name], ()


def _table_is_missing(error: Exception) -> bool:
    """Whether a statement of ours failed because of it; whatever it was part of is rolled back."""
    return getattr(error, "sqlstate", None) == "42P01"  # both drivers name it so


def _explain(sql: str, error: Exception) -> None:
    if sql in {statements()[name] for name in _TABLE}:
        error.add_note(
            "the table duly_effects is missing and cannot be created by this user: "
            "run what `duly effects-sql` prints"
        )


def _encode(result: object, codec: Codec | None) -> str:
    try:
        return result_json(result, codec).decode()
    except TooLong as error:
        raise Fail(f"of the effect: {error}") from None
    except Exception as error:
        raise Fail(f"the effect's result cannot be stored: {error}") from error
