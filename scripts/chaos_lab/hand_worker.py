"""A worker by the documented protocol alone (docs/worker-protocol.md), without the SDK."""

import asyncio
import json
import os
import time
import uuid
from typing import Any

import aiohttp
from redis.asyncio import Redis
from redis.exceptions import RedisError, ResponseError

from chaos_lab import work

_QUEUE = work.QUEUES[0]
_TASKS, _INFLIGHT, _REPORTS = (f"duly:{{{_QUEUE}}}:{k}" for k in ("tasks", "inflight", "reports"))
_ROOM = 20
_LIMIT_S = 5.0
_TROUBLE = (RedisError, OSError, TimeoutError)
_AGAIN_S = 0.5
_LOOK_EVERY_S = 3.0


class HandWorker:
    """Up to `_ROOM` attempts at a time."""

    def __init__(self, http: aiohttp.ClientSession) -> None:
        self._id = f"hand-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self._log = work.log_from_environment()
        self._http = http
        self._redis: Any = Redis.from_url(
            os.environ["DULY_REDIS_URL"], protocol=2, socket_connect_timeout=_LIMIT_S
        )
        self._held: dict[bytes, asyncio.Task[None]] = {}
        self._beat_at = 0.0
        self._look_at = 0.0

    async def run(self) -> None:
        """Work until killed."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._live())
            tasks.create_task(self._read())

    async def _call(self, *words: Any, limit_s: float = _LIMIT_S) -> Any:
        async with asyncio.timeout(limit_s):
            return await self._redis.execute_command(*words)

    async def _live(self) -> None:
        while True:
            facts = {"concurrency": _ROOM, "queues": [_QUEUE], "pid": os.getpid(), "sdk": "none"}
            try:
                await self._call("SET", f"duly:workers:{self._id}", json.dumps(facts), "PX", 10_000)
                self._beat_at = time.monotonic()
            except _TROUBLE:
                await asyncio.sleep(_AGAIN_S)
            else:
                await asyncio.sleep(3)

    async def _read(self) -> None:
        while True:
            try:
                await self._take()
            except ResponseError as error:
                if str(error).startswith("NOGROUP"):
                    await self._make_group()
                await asyncio.sleep(_AGAIN_S)
            except _TROUBLE:
                self._look_at = 0.0  # what was read may be ours without our knowing
                await asyncio.sleep(_AGAIN_S)

    async def _make_group(self) -> None:
        try:
            await self._call("XGROUP", "CREATE", _TASKS, "workers", "0", "MKSTREAM")
        except _TROUBLE:
            return  # BUSYGROUP: another was faster; anything else shows at the next read

    async def _take(self) -> None:
        room = _ROOM - len(self._held)
        if room <= 0 or time.monotonic() - self._beat_at > 8:
            await asyncio.sleep(0.05)
            return
        if time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + _LOOK_EVERY_S
            await self._look_for_more()
            return
        answer = await self._call(
            "XREADGROUP", "GROUP", "workers", self._id, "COUNT", room, "BLOCK", 1000,
            "STREAMS", _TASKS, ">", limit_s=_LIMIT_S + 1,
        )  # fmt: skip
        for entry, fields in _entries(answer):
            self._hold(entry, fields)

    async def _look_for_more(self) -> None:
        """Take in what is pending under our name and unknown to us."""
        answer = await self._call(
            "XREADGROUP", "GROUP", "workers", self._id, "COUNT", _ROOM, "STREAMS", _TASKS, "0"
        )
        for entry, fields in _entries(answer):
            if entry not in self._held:
                self._hold(entry, fields)

    def _hold(self, entry: bytes, fields: dict[str, str]) -> None:
        task = asyncio.create_task(self._handle(entry, fields))
        self._held[entry] = task
        task.add_done_callback(lambda _: self._held.pop(entry, None))

    async def _handle(self, entry: bytes, fields: dict[str, str]) -> None:
        if not fields:  # deleted meanwhile
            await self._give_back(entry, [])
            return
        timeout_s = float(fields["timeout"])
        try:
            async with asyncio.timeout(timeout_s):
                if not await self._may_begin(fields):
                    await self._give_back(entry, [])
                    return
                began = time.time()
                report = await self._perform(fields)
        except TimeoutError:
            began = time.time() - timeout_s
            report = ["outcome", "failed", "error", '{"type":"timed_out","message":"too slow"}']
        times = ["started", f"{began * 1000:.3f}", "finished", f"{time.time() * 1000:.3f}"]
        who = ["id", fields["id"], "token", fields["token"], "worker", self._id]
        await self._give_back(entry, [*who, *times, *report])

    async def _may_begin(self, fields: dict[str, str]) -> bool:
        while True:
            try:
                known = await self._call("HGET", _INFLIGHT, fields["id"])
                break
            except _TROUBLE:
                await asyncio.sleep(_AGAIN_S)
        if known != fields["token"].encode():
            return False
        return fields["confirm"] != "1" or await self._confirm(fields)

    async def _confirm(self, fields: dict[str, str]) -> bool:
        url = f"{os.environ['CHAOS_API']}/v1/tasks/{fields['id']}/start"
        asked = {
            "token": int(fields["token"]), "start_id": uuid.uuid4().hex, "worker": self._id
        }  # fmt: skip
        while True:
            try:
                async with self._http.post(url, json=asked) as answer:
                    if answer.status in (200, 409):
                        return answer.status == 200
            except (aiohttp.ClientError, TimeoutError):
                pass  # asked again below
            await asyncio.sleep(_AGAIN_S)

    async def _perform(self, fields: dict[str, str]) -> list[str]:
        task_id, token = fields["id"], int(fields["token"])
        self._log.start(task_id, token, json.loads(fields["payload"])["v"])
        try:
            await work.perform(fields["type"], int(fields["attempt"]))
        except work.NotNowError:
            self._log.end(task_id, token, "snoozed")
            return ["outcome", "snoozed", "delay", str(work.RETRY_DELAY_S)]
        except work.FailedError:
            self._log.end(task_id, token, "failed")
            return ["outcome", "failed", "error", '{"type":"Failure"}']
        result = work.new_result(token)
        self._log.end(task_id, token, "completed", result)
        return ["outcome", "completed", "result", json.dumps(result)]

    async def _give_back(self, entry: bytes, report: list[str]) -> None:
        """Report (if there is anything to report) and give the entry back, until Redis has it."""
        while True:
            pipe = self._redis.pipeline(transaction=True)
            if report:
                pipe.execute_command("XADD", _REPORTS, "*", *report)
            pipe.execute_command("XACK", _TASKS, "workers", entry)
            pipe.execute_command("XDEL", _TASKS, entry)
            try:
                async with asyncio.timeout(_LIMIT_S):
                    await pipe.execute()
                return
            except _TROUBLE:
                await asyncio.sleep(_AGAIN_S)


def _entries(answer: Any) -> list[tuple[bytes, dict[str, str]]]:
    """Of one stream, as RESP2 or the client's own parser shapes it."""
    found = []
    for _, entries in answer or []:
        for entry, fields in entries:
            text = {name.decode(): value.decode() for name, value in (fields or {}).items()}
            found.append((entry, text))
    return found


async def main() -> None:
    """Run one worker."""
    timeout = aiohttp.ClientTimeout(total=_LIMIT_S)
    async with aiohttp.ClientSession(timeout=timeout) as http:
        await HandWorker(http).run()


if __name__ == "__main__":
    asyncio.run(main())
