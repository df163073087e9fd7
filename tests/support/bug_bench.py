"""A node with a bug planted, a worker in the test's hands, and the evidence that the checker reads."""

import time
import uuid
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp
import asyncpg
from chaos_lab import store, work
from chaos_lab.checker import check_folder, tally
from chaos_lab.evidence import CLIENT_LOG
from chaos_lab.journal import Journal
from chaos_lab.node import make_clock
from hand_worker import HandWorker, Taken
from processes import Child, Processes
from waiting import wait_for

from duly.nodes.embedded.ports import choose

QUEUE = work.QUEUES[0]
_SCRIPTS = Path(__file__).parents[2] / "scripts"
_PATIENCE_S = 60.0
_TROUBLE = (aiohttp.ClientError, TimeoutError)
_QUICK = {
    "DULY_LEASE_TTL_S": "2",
    "DULY_LEASE_RENEW_S": "0.25",
    "DULY_SWEEP_EVERY_S": "0.1",
    "DULY_NODE_NAME": "bug-bench",
}


class BugBench:
    """One node at a time; used as an async context manager."""

    def __init__(
        self, database_url: str, redis_url: str, processes: Processes, folder: Path
    ) -> None:
        self._database_url = database_url
        self._redis_url = redis_url
        self._processes = processes
        self._folder = folder
        self._api = f"http://127.0.0.1:{choose(folder / 'port')}"
        self._client_log = Journal(folder / CLIENT_LOG)
        self._worker_log = work.Log(folder, "by-hand")
        self._batches = 0
        make_clock(folder / "clock")
        self._http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20))
        self.worker = HandWorker(redis_url, queue=QUEUE)
        self.node: Child | None = None

    async def __aenter__(self) -> Self:
        await self.sql(store.EFFECTS_TABLE)
        await self.worker.live(ttl_ms=600_000)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._http.close()
        await self.worker.__aexit__()

    async def start_node(self, *bugs: str) -> None:
        """Start a node with these bugs in it, in place of one that has been killed."""
        environment = {
            **_QUICK,
            "DULY_DATABASE_URL": self._database_url,
            "DULY_REDIS_URL": self._redis_url,
            "DULY_PORT": self._api.rpartition(":")[2],
            "PYTHONPATH": str(_SCRIPTS),
        }
        module = ("-m", "chaos_lab.node", self._folder / "clock")
        self.node = self._processes.python(*module, *bugs, "--", "node", env=environment)

        async def ready() -> bool:
            assert self.node is not None
            assert self.node.exit_code is None, self.node.output
            async with self._http.get(f"{self._api}/readyz") as answer:
                return answer.status == 200

        await wait_for(ready, _PATIENCE_S, "the node is ready", ignore=_TROUBLE)

    async def sql(self, statement: str, *arguments: object) -> Any:
        """The first value of a statement's answer."""
        connection = await asyncpg.connect(self._database_url, timeout=10)
        try:
            return await connection.fetchval(statement, *arguments)
        finally:
            await connection.close()

    async def submit(
        self,
        kind: str = "quick",
        *,
        ahead_s: float = 0.0,
        every_s: float | None = None,
        runs: int = 1,
    ) -> str:
        """Submit a task, note what was said, answer its id; `every_s`: a periodic one, of `runs`."""
        task_id, sent = str(uuid.uuid4()), time.time()
        body: dict[str, Any] = {
            "id": task_id, "type": kind, "queue": QUEUE, "payload": {"v": 1},
            "max_retries": work.KINDS[kind].max_retries, "on_lost": work.KINDS[kind].on_lost,
            "backoff": {"kind": "fixed", "delay": work.RETRY_DELAY_S, "jitter": 0},
        }  # fmt: skip
        due = round(sent + ahead_s, 3)
        if every_s is not None:
            body["schedule"] = {"every": every_s, "start_at": _text(due), "max_runs": runs}
        elif ahead_s:
            body["run_at"] = _text(due)
        noted = {
            "id": task_id, "kind": kind, "due": due, "retry_delay": work.RETRY_DELAY_S,
            "max_retries": body["max_retries"], "every": every_s, "runs": runs,
        }  # fmt: skip
        self._batches += 1
        self._client_log.add(e="submit", batch=self._batches, sent=sent, tasks=[noted])
        status = await self.ask("POST", "/v1/tasks/batch", {"tasks": [body]})
        self._client_log.add(
            e="submitted", batch=self._batches, at=time.time(), accepted=status == 201
        )
        return task_id

    async def ask(self, method: str, path: str, body: object = None) -> int:
        """Any request; its status."""
        async with self._http.request(method, f"{self._api}{path}", json=body) as answer:
            await answer.read()
            return answer.status

    async def cancel(self, task_id: str) -> None:
        """Cancel it, and note what was said."""
        await self._note("cancel", task_id, "POST", "/cancel", None)

    async def change(self, task_id: str, *, ahead_s: float) -> None:
        """Change its payload and time, and note what was said."""
        due = time.time() + ahead_s
        await self._note("change", task_id, "PATCH", "", due)

    async def _note(
        self, kind: str, task_id: str, method: str, path: str, due: float | None
    ) -> None:
        body = None if due is None else {"run_at": _text(due), "payload": {"v": 2}}
        sent = time.time()
        status = await self.ask(method, f"/v1/tasks/{task_id}{path}", body)
        self._client_log.add(
            e=kind, id=task_id, sent=sent, answered=time.time(), status=status, due=due
        )

    async def take(self) -> Taken:
        """Wait for an entry, and note that its handler begins."""
        taken = await self.worker.take(_PATIENCE_S)
        self.began(taken)
        return taken

    def began(self, taken: Taken) -> None:
        """Note that a handler begins."""
        version = 2 if '"v": 2' in taken.fields["payload"] else 1
        self._worker_log.start(taken.id, int(taken.fields["token"]), version)

    async def finish(self, taken: Taken, outcome: str = "completed") -> None:
        """Note how a handler ended, and report it."""
        token = int(taken.fields["token"])
        result = work.new_result(token) if outcome == "completed" else None
        self._worker_log.end(taken.id, token, outcome, result)
        fields = {} if result is None else {"result": f'"{result}"'}
        await self.worker.report(taken, outcome, **fields)

    async def reports_read(self) -> None:
        """Wait until a node has dealt with every report."""

        async def none_left() -> bool:
            return (await self.worker.sizes())[1] == 0

        await wait_for(none_left, _PATIENCE_S, "the reports are dealt with")

    async def ended(self, task_id: str) -> None:
        """Wait until the task has ended."""

        async def gone() -> bool:
            return not await self.sql("select count(*) from tasks where id::text = $1", task_id)

        await wait_for(gone, _PATIENCE_S, "the task has ended", poll_s=0.1)

    async def broken(self) -> dict[str, int]:
        """What the checker finds: breaches by rule, of those rules that are broken."""
        await store.save(self._database_url, self._redis_url, (QUEUE,), self._folder)
        found = check_folder(self._folder)
        print(*found, sep="\n")
        return {rule: count for rule, count in tally(found).items() if count}


def _text(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat()
