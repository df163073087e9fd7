"""Hands on what was submitted here for other regions: in order, each once, for as long as it takes.

One node at a time has the turn of a region; any node takes it over when that one is gone. What is sent may
arrive and its answer be lost: then it is sent again, and the other region knows it by its id. An answer
that refuses a task is its end, and the next one goes on; any other trouble holds all of them up.
"""

import logging
import random
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final, NoReturn
from uuid import UUID

import anyio
import msgspec
from msgspec import Raw

from duly.actors import trail
from duly.actors.context import Context
from duly.actors.patience import Patience
from duly.actors.runtime import Actor, Mailbox
from duly.nodes.regions.directory import Answer, Regions, UnreachableError
from duly.nodes.regions.messages import Handed, Handover, HandoverAnswer, Verdict
from duly.storage import forwarding
from duly.storage.errors import StoreUnavailableError
from duly.storage.forwarding import Kept, Outcome
from duly.wheel.durations import from_us

log = logging.getLogger("duly.regions")

TURN_S: Final = 15.0
"""So long a killed node keeps its turn; more than one request may take."""

_LONGEST_S = 10.0
_PAGE = 200
_PAGE_BYTES = 8 * 1024 * 1024
_LOOK_S = 1.0
_COUNT_EVERY = 10  # looks
_CROWD_S = 0.05
_FORGET_S = 600.0
_OF_THE_BODY: Final = frozenset({400, 413, 415, 422})

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(HandoverAnswer)


class _TooMuchError(Exception):
    """The region does not take the request as it is; it may take a part of it."""


class Forwarder(Actor[NoReturn]):
    """Does nothing on a node that knows no other regions."""

    name = "forwarder"

    def __init__(self, context: Context, regions: Regions) -> None:
        super().__init__(Mailbox("forwarder", 1))
        self._context = context
        self._regions = regions
        self._reading = Patience("reading the outbox", log, context.vitals.postgres)

    async def run(self) -> None:
        if self._regions.others:
            async with anyio.create_task_group() as group:
                for region in self._regions.others:
                    group.start_soon(self._serve, region)
                group.start_soon(self._watch)
                group.start_soon(self._forget)
                await self.stopping.wait()
                group.cancel_scope.cancel()
        await self.stopping.wait()

    async def stopped(self) -> None:
        for region in self._regions.others:
            try:
                await forwarding.end_turn(
                    self._context.db, region, self._context.node_id, self._now()
                )
            except StoreUnavailableError as error:  # it ends by itself
                log.warning("region %s waits %g s for another node: %s", region, TURN_S, error)
                break
        await self._regions.close()

    async def _serve(self, region: str) -> None:
        """Hand tasks to one region whenever some wait."""
        patience = Patience(f"handing tasks to region {region}", log, longest_s=_LONGEST_S)
        kick = self._regions.kicks[region]
        while True:
            await kick.wait()
            kick.clear()
            try:
                if not await self._take_turn(region):
                    # Another node has it, perhaps only for a moment.
                    await anyio.sleep(_CROWD_S * random.uniform(0.5, 1.5))
                    if self._regions.replies:
                        kick.set()
                    continue
                patience.worked()
            except UnreachableError as error:
                self._regions.failing[region] = str(error)
                await self._fail(region, str(error))
                await anyio.sleep(patience.failed(error))
                kick.set()
            except StoreUnavailableError as error:
                await anyio.sleep(self._reading.failed(error))
                kick.set()

    async def _take_turn(self, region: str) -> bool:
        """Hand on all that waits; False if it is another node's turn."""
        db, node, page = self._context.db, self._context.node_id, _PAGE
        while True:
            now = self._now()
            until = now + timedelta(seconds=TURN_S)
            rows = await forwarding.take(db, region, node, now, until, page, _PAGE_BYTES)
            self._reading.worked()
            if rows is None:
                return False
            if rows:
                try:
                    verdicts = await self._hand(region, rows)
                except _TooMuchError:
                    await forwarding.unsend(db, region, node, rows)
                    page = len(rows) // 2
                    continue
                except UnreachableError as error:
                    if not error.sent:
                        await forwarding.unsend(db, region, node, rows)
                    raise
                await self._settle(rows, verdicts)
            self._regions.failing.pop(region, None)
            if not rows or (len(rows) < page and not self._regions.kicks[region].is_set()):
                await forwarding.end_turn(db, region, node, self._now())
                return True

    async def _hand(self, region: str, rows: Sequence[Kept]) -> list[Verdict]:
        """Send, and read what became of each. Raises UnreachableError if nobody knows."""
        tasks = [
            Handed(row.id, row.accepted_at, Raw(row.body or b""), row.key, row.traceparent)
            for row in rows
        ]
        body = _encoder.encode(Handover(region, tasks))
        answer = await self._regions.ask(region, "POST", "/v1/forwarded", body=body)
        if answer.status in _OF_THE_BODY:
            if len(rows) > 1:  # one of them must not hold up the others
                raise _TooMuchError
            return [Verdict(answer.status, problem=_problem(answer))]
        if answer.status != 200:
            detail = f"it answered {answer.status}: {_detail(answer.body)}"
            raise UnreachableError(region, detail, sent=answer.status >= 500)
        try:
            verdicts = _decoder.decode(answer.body).answers
        except msgspec.MsgspecError as error:
            raise UnreachableError(region, f"its answer is not ours: {error}", sent=True) from None
        whole = all((one.task_id is None) == (one.status >= 400) for one in verdicts)
        if len(verdicts) != len(rows) or not whole:
            raise UnreachableError(region, "its answer is not whole", sent=True)
        return verdicts

    async def _settle(self, rows: Sequence[Kept], verdicts: Sequence[Verdict]) -> None:
        now = self._now()
        until = now + timedelta(seconds=self._context.options.retention_s)
        pairs = list(zip(rows, verdicts, strict=True))
        outcomes = [_outcome(row.id, verdict, now, until) for row, verdict in pairs]
        await forwarding.settle(self._context.db, outcomes, now)
        for row, verdict in pairs:
            reply = self._regions.replies.pop(row.id, None)
            if verdict.task_id is None and reply is None:
                log.error(
                    "region %s refuses task %s: %s", row.region, row.id, _detail(verdict.problem),
                    extra=trail.fields(row.id),
                )  # fmt: skip
            if reply is not None:
                reply.set(verdict)

    async def _fail(self, region: str, error: str) -> None:
        """Say why, for all nodes to see, and go on having the turn for a while."""
        now = self._now()
        until = now + timedelta(seconds=TURN_S)
        try:
            db, node = self._context.db, self._context.node_id
            await forwarding.end_turn(db, region, node, now, until, error[:500])
        except StoreUnavailableError as failure:
            self._reading.failed(failure)

    async def _watch(self) -> None:
        """Look for what other nodes have kept, or left behind, and keep what the metrics show."""
        looks, wait_s = 0, _LOOK_S * random.random()
        while True:
            await anyio.sleep(wait_s)
            try:
                heads = await forwarding.heads(self._context.db)
                if looks % _COUNT_EVERY == 0:
                    self._regions.depths = await forwarding.depths(self._context.db)
                looks += 1
                self._reading.worked()
                wait_s = _LOOK_S
            except StoreUnavailableError as error:
                wait_s = self._reading.failed(error)
                continue
            self._regions.oldest = {head.region: head.accepted_at for head in heads}
            waiting = {head.region: head for head in heads}
            for region, kick in self._regions.kicks.items():
                head = waiting.get(region)
                if head is None or head.error is None:
                    self._regions.failing.pop(region, None)
                else:
                    self._regions.failing[region] = head.error
                if head is not None:
                    kick.set()

    async def _forget(self) -> None:
        wait_s = _FORGET_S * random.random()
        while True:
            await anyio.sleep(wait_s)
            wait_s = _FORGET_S
            try:
                while await forwarding.forget(self._context.db, self._now()):
                    pass
            except StoreUnavailableError as error:
                wait_s = self._reading.failed(error)

    def _now(self) -> datetime:
        return from_us(self._context.clock.now_us())


def _outcome(task_id: UUID, verdict: Verdict, now: datetime, until: datetime) -> Outcome:
    if verdict.task_id is None:
        return Outcome(task_id, "refused", None, bytes(verdict.problem).decode(), until)
    late_s = max(0.0, (verdict.due - now).total_seconds()) if verdict.due else 0.0
    return Outcome(task_id, "delivered", verdict.task_id, None, until + timedelta(seconds=late_s))


def _problem(answer: Answer) -> Raw:
    try:
        msgspec.json.decode(answer.body, type=dict[str, object])
    except msgspec.MsgspecError:
        text = answer.body[:200].decode(errors="replace")
        return Raw(_encoder.encode({"status": answer.status, "detail": text}))
    return Raw(answer.body)


def _detail(body: bytes | Raw) -> str:
    try:
        return str(msgspec.json.decode(body, type=dict[str, object])["detail"])
    except (msgspec.MsgspecError, KeyError):
        return bytes(body)[:200].decode(errors="replace")
