"""Submits, cancels and changes at a steady rate, and writes down what was asked and answered.

Every task has an id of the client's own, so that one whose submission was never answered can be told
from one that was lost. HTTP by hand: the checker does not want to hear it from Duly's own client.
"""

import asyncio
import random
import time
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import aiohttp

from chaos_lab.evidence import CLIENT_LOG
from chaos_lab.journal import Journal
from chaos_lab.work import KINDS, PERIOD_S, PERIODIC_RUNS, RETRY_DELAY_S

_TICK_S: Final = 0.2
_ANSWER_S: Final = 12.0
_AVOIDED_S: Final = 5.0
_UNDER_WAY_MAX: Final = 60
_NOW_SHARE: Final = 0.3
_SINGLE_SHARE: Final = 0.15
_CHANGE_SHARE: Final = 0.04  # of the tasks that are due later
_AHEAD_S: Final = (0.3, 8.0)
_KIND_NAMES: Final = list(KINDS)
_KIND_SHARES: Final = [kind.share for kind in KINDS.values()]


class Load:
    """The client of a run."""

    def __init__(self, apis: Sequence[str], folder: Path, seed: int) -> None:
        self._apis = list(apis)
        self._journal = Journal(folder / CLIENT_LOG)
        self._silent_until = dict.fromkeys(self._apis, 0.0)
        self._chance = random.Random(seed)
        self._under_way: set[asyncio.Task[None]] = set()
        self._batches = 0
        self.submitted = 0
        """Tasks that were accepted."""
        self.unsure = 0
        """Tasks whose submission had no clear answer."""
        self.changes = 0
        """Cancels and changes that were tried."""

    async def run(
        self, rate: float, seconds: float, longer: Callable[[], bool] = lambda: False
    ) -> None:
        """Submit `rate` tasks a second for `seconds`, and for as long as `longer` says so after them.

        What an outage left undone is made up for.
        """
        timeout = aiohttp.ClientTimeout(total=_ANSWER_S)
        connector = aiohttp.TCPConnector(limit=2 * _UNDER_WAY_MAX)
        async with aiohttp.ClientSession(timeout=timeout, connector=connector) as http:
            began = time.monotonic()
            sent = 0
            while (passed := time.monotonic() - began) < seconds or longer():
                owed = round((passed + _TICK_S) * rate) - sent
                size = min(owed, round(4 * rate * _TICK_S))
                if size > 0 and len(self._under_way) < _UNDER_WAY_MAX:
                    sent += size
                    self._spawn(self._submit(http, size))
                await asyncio.sleep(_TICK_S)
            while self._under_way:
                await asyncio.wait(self._under_way)

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _submit(self, http: aiohttp.ClientSession, size: int) -> None:
        single = self._chance.random() < _SINGLE_SHARE
        if single:
            for _ in range(min(size, 3)):
                await self._submit_some(http, [self._new_task()], single=True)
            size -= min(size, 3)
        if size:
            await self._submit_some(http, [self._new_task() for _ in range(size)], single=False)

    async def _submit_some(
        self, http: aiohttp.ClientSession, bodies: list[dict[str, Any]], *, single: bool
    ) -> None:
        self._batches += 1
        batch, sent = self._batches, time.time()
        noted = [_noted(body, sent) for body in bodies]
        self._journal.add(e="submit", batch=batch, sent=sent, tasks=noted)
        if single:
            url, body = "/v1/tasks", {**bodies[0], "idempotency_key": bodies[0]["id"]}
        else:
            url, body = "/v1/tasks/batch", {"tasks": bodies}
        accepted = await self._post_tasks(http, url, body, again=single)
        self._journal.add(e="submitted", batch=batch, at=time.time(), accepted=accepted)
        if accepted is None:
            self.unsure += len(bodies)
        elif accepted:
            self.submitted += len(bodies)
            for task in bodies:
                if "run_at" in task and self._chance.random() < _CHANGE_SHARE:
                    self._spawn(self._disturb(http, task))

    async def _post_tasks(
        self, http: aiohttp.ClientSession, url: str, body: Any, *, again: bool
    ) -> bool | None:
        """Whether they were accepted; None: not known. With `again`, ask until there is an answer."""
        for _ in range(10 if again else 1):
            status = await self._ask(http, "POST", url, body)
            if status is not None and status < 500:
                return status < 300
            await asyncio.sleep(1.0 if again else 0)
        return None

    async def _disturb(self, http: aiohttp.ClientSession, task: dict[str, Any]) -> None:
        """Cancel or change a task somewhere between now and a moment after it is due."""
        due = _epoch(task["run_at"])
        assert due is not None
        await asyncio.sleep(max(0.0, self._chance.uniform(0, due + 0.3 - time.time())))
        self.changes += 1
        url = f"/v1/tasks/{task['id']}"
        sent, new = time.time(), None
        if self._chance.random() < 0.5:
            kind, status = "cancel", await self._ask(http, "POST", f"{url}/cancel", None)
        else:
            new = round(sent + self._chance.uniform(0.2, 4.0), 3)
            body = {"run_at": _text(new), "payload": {"v": 2}}
            kind, status = "change", await self._ask(http, "PATCH", url, body)
        clear = status if status is not None and status < 500 else None
        self._journal.add(
            e=kind, id=task["id"], sent=sent, answered=time.time(), status=clear, due=new
        )

    async def _ask(
        self, http: aiohttp.ClientSession, method: str, path: str, body: Any
    ) -> int | None:
        """The status, or None if there was no answer; asks another node where none is."""
        apis = self._chance.sample(self._apis, len(self._apis))
        # As a load balancer does: the one that was silent is asked last for a while.
        for api in sorted(apis, key=lambda api: self._silent_until[api] > time.monotonic()):
            try:
                async with http.request(method, f"{api}{path}", json=body) as answer:
                    await answer.read()
                    return answer.status
            except aiohttp.ClientConnectorError:
                continue  # surely not sent
            except (aiohttp.ClientError, OSError, TimeoutError):
                self._silent_until[api] = time.monotonic() + _AVOIDED_S
                return None
        return None

    def _new_task(self) -> dict[str, Any]:
        name = self._chance.choices(_KIND_NAMES, _KIND_SHARES)[0]
        kind = KINDS[name]
        task: dict[str, Any] = {
            "id": str(uuid.UUID(int=self._chance.getrandbits(128), version=4)),
            "type": name,
            "queue": kind.queue,
            "payload": {"v": 1},
            "max_retries": kind.max_retries,
            "backoff": {"kind": "fixed", "delay": RETRY_DELAY_S, "jitter": 0},
            "timeout": kind.timeout,
            "on_lost": kind.on_lost,
        }
        if name == "periodic":
            task |= {
                "schedule": {
                    "every": PERIOD_S,
                    "start_at": _text(round(time.time() + self._chance.uniform(*_AHEAD_S), 3)),
                    "max_runs": PERIODIC_RUNS,
                },
                "overrun": self._chance.choice(("skip", "queue")),
            }
        elif self._chance.random() >= _NOW_SHARE:
            task["run_at"] = _text(round(time.time() + self._chance.uniform(*_AHEAD_S), 3))
        return task


def _noted(body: dict[str, Any], sent: float) -> dict[str, Any]:
    """What the checker should know of a submission."""
    noted = {
        "id": body["id"], "kind": body["type"], "due": _epoch(body.get("run_at")) or sent,
        "max_retries": body["max_retries"], "retry_delay": RETRY_DELAY_S,
    }  # fmt: skip
    schedule = body.get("schedule")
    if schedule is not None:
        noted |= {
            "due": _epoch(schedule["start_at"]), "every": schedule["every"],
            "runs": schedule["max_runs"],
        }  # fmt: skip
    return noted


def _text(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")


def _epoch(text: str | None) -> float | None:
    return None if text is None else datetime.fromisoformat(text).timestamp()
