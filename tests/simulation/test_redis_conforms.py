"""The simulated Redis does what a real one does: the same random calls, the same answers.

Entry ids differ, as the clocks do: they are compared by the order in which they were first seen.
"""

import asyncio
import itertools
import random
import re
from importlib.resources import files
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.exceptions import ResponseError
from simulated.command_draws import Call, Draws
from simulated.redis_commands import OK, Commands
from simulated.redis_data import CommandError
from simulated.redis_lua import run_script

from duly.storage import keys
from duly.storage.redis import connect


def script_text(name: str) -> str:
    return (files("duly.storage.lua") / f"{name}.lua").read_text(encoding="utf-8")


_ENTRY = re.compile(rb"\d{13}-\d+")
_GROUP_FACTS = (b"name", b"pending", b"last-delivered-id")


class Names:
    """Stands for entry ids: e0, e1, … as they come up."""

    def __init__(self) -> None:
        self._known: dict[bytes, bytes] = {}

    def plain(self, reply: Any) -> Any:
        """A reply without what may differ: entry ids, times, order of fields."""
        if isinstance(reply, list):
            return [self.plain(one) for one in reply]
        if isinstance(reply, set):
            return sorted(reply)
        if isinstance(reply, dict):
            return {key: self.plain(value) for key, value in reply.items()}
        if isinstance(reply, bytes) and _ENTRY.fullmatch(reply):
            return self._known.setdefault(reply, b"e%d" % len(self._known))
        return reply


class Real:
    """A real server."""

    def __init__(self, client: Redis) -> None:
        self._client = client
        self._client.response_callbacks.clear()
        self.names = Names()

    async def run(self, call: Call) -> Any:
        await asyncio.sleep(0.002)  # in another millisecond: no entry id comes up twice
        try:
            if not call.script:
                return await self._client.execute_command(*call.words)  # type: ignore[no-untyped-call]
            script = self._client.register_script(script_text(call.script))
            return await script(keys=call.keys, args=call.words)
        except ResponseError as error:
            return f"error {str(error).split(' script')[0][:30]}"


class Simulated:
    """The simulated one."""

    def __init__(self) -> None:
        self._ms = itertools.count(1_790_000_000_000)
        self._now_ms = next(self._ms)
        self._commands = Commands(lambda: self._now_ms)
        self.names = Names()

    async def run(self, call: Call) -> Any:
        self._now_ms = next(self._ms)
        if call.words == ["FLUSHDB"]:
            self._commands.flush(restart=False)
            return b"OK"
        words = [w if isinstance(w, bytes) else str(w).encode() for w in call.words]
        try:
            if not call.script:
                reply = self._commands.run(words)
            else:
                names = [key.encode() for key in call.keys]
                reply = run_script(self._commands, script_text(call.script), names, words)
        except CommandError as error:
            return f"error {str(error)[:30]}"
        return b"OK" if reply is OK else reply


def without_times(call: Call, reply: Any) -> Any:
    """Idle times differ; and before Redis 7.2 a read that brings nothing makes no consumer."""
    if call.words[:2] == ["XGROUP", "CREATECONSUMER"]:
        return None
    if call.words[:1] == ["XPENDING"] and reply and isinstance(reply[0], list):
        return [[*row[:2], row[3]] for row in reply]
    if call.script in ("permits", "publish") and isinstance(reply, list):
        return [*reply[:-1], reply[-1] > 0]  # the wait
    if call.script == "data_mark" and isinstance(reply, list):
        return reply[1:]  # each server has a run id of its own
    if call.script == "locate" and isinstance(reply, list):
        return [row[:2] for row in reply]
    if call.words[:1] == ["HSCAN"]:
        return [reply[0], dict(zip(reply[1][::2], reply[1][1::2], strict=True))]
    if call.words[:1] == ["SMEMBERS"]:
        return sorted(reply)
    return reply


async def state(server: Real | Simulated) -> list[Any]:
    """All that can be seen of the streams."""
    seen: list[Any] = []
    for stream in (keys.tasks("q"), keys.reports("q")):
        seen.append(await server.run(Call("", [], ["XRANGE", stream, "-", "+"])))
        groups = await server.run(Call("", [], ["XINFO", "GROUPS", stream]))
        for words in groups if isinstance(groups, list) else ():
            facts = dict(zip(words[::2], words[1::2], strict=True))
            seen.append([facts[name] for name in _GROUP_FACTS])
    for name in (keys.inflight("q"), keys.entries("q")):
        reply = await server.run(Call("", [], ["HSCAN", name, 0, "COUNT", 200]))
        seen.append(sorted(zip(reply[1][::2], reply[1][1::2], strict=True)))
    return seen


@pytest.mark.parametrize("seed", range(8))
async def test_random_calls_answer_alike(redis_url: str, seed: int) -> None:
    client = connect(redis_url, name="test")
    real, simulated = Real(client), Simulated()
    try:
        both: list[tuple[Real | Simulated, Draws]] = [
            (real, Draws(random.Random(seed))),
            (simulated, Draws(random.Random(seed))),
        ]
        for number in range(400):
            said = []
            for server, draws in both:
                call = draws.draw()
                reply = without_times(call, await server.run(call))
                said.append((call.script, call.words[:4], server.names.plain(reply)))
                learn(draws, call, reply)
            assert said[1][2] == said[0][2], (number, said[0][:2])
            if number % 20 == 19:
                seen = [server.names.plain(shown(await state(server))) for server, _ in both]
                assert seen[1] == seen[0], number
    finally:
        await client.aclose()


def shown(value: Any) -> Any:
    """Tuples as lists."""
    return [shown(one) for one in value] if isinstance(value, list | tuple) else value


def learn(draws: Draws, call: Call, reply: Any) -> None:
    """Remember entries, to ask about them."""
    if call.words[:1] == ["XREADGROUP"] and isinstance(reply, list):
        into = draws.entries if keys.WORKERS_GROUP in call.words else draws.reports
        for _, entries in reply:
            into.extend(entry for entry, _ in entries)
