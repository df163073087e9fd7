"""What the worker reported, read as a recorder reads it; every report is kept."""

import asyncio
import contextlib
import json
from dataclasses import dataclass
from typing import Any, Final

from duly.nodes.conformance.attempts import Attempt
from duly.nodes.conformance.rule import Broken
from duly.nodes.conformance.signs import Call
from duly.storage import keys
from duly.storage.redis import TROUBLE, text
from duly.storage.stream_facts import fields

_READ_EVERY_S: Final = 0.02


@dataclass(frozen=True)
class Report:
    """One entry of the reports stream, as text."""

    fields: dict[str, str]

    def __getitem__(self, name: str) -> str:
        return self.fields.get(name, "")

    def value(self, name: str) -> Any:
        """A field that is JSON. Raises Broken if it is none."""
        try:
            return json.loads(self[name])
        except ValueError:
            raise Broken(f"{name} is not JSON: {self[name][:80]!r}") from None


class Reports:
    """The reports of one queue."""

    def __init__(self, call: Call, queue: str) -> None:
        self._call = call
        self._queue = queue
        self._read_to = "-"
        self._seen: list[Report] = []

    async def read(self) -> None:
        """Take in what is new: keep it, and settle what it is about."""
        rows = await self._call("XRANGE", keys.reports(self._queue), self._read_to, "+")
        for entry_id, words in rows:
            self._read_to = f"({text(entry_id)}"
            said = {text(key): text(value) for key, value in fields(words).items()}
            self._seen.append(Report(said))
            task_id = said.get("id", "")
            if text(
                await self._call("HGET", keys.inflight(self._queue), task_id) or b""
            ) == said.get("token"):
                await self._call("HDEL", keys.inflight(self._queue), task_id)

    async def keep_reading(self) -> None:
        """`read` until cancelled."""
        while True:
            # Refused while a rule lets Redis be full: the next look brings it.
            with contextlib.suppress(*TROUBLE):
                await self.read()
            await asyncio.sleep(_READ_EVERY_S)

    async def all_read(self) -> bool:
        """Whether the newest report has been read."""
        newest = await self._call("XREVRANGE", keys.reports(self._queue), "+", "-", "COUNT", 1)
        return not newest or self._read_to == f"({text(newest[0][0])}"

    def of(self, attempt: Attempt) -> list[Report]:
        """All reports about this attempt."""
        token = str(attempt.token)
        return [r for r in self._seen if r["id"] == attempt.id and r["token"] == token]
