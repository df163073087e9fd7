"""Looks after watched schedules: raises what is silent for too long, clears what is over.

Any live node does it for all tasks, since what is to be told of may be that nobody owns them. What is
raised, or cleared, is logged by one node, once.
"""

import logging
import random
from typing import NoReturn

from duly.actors.broadcaster import AlertEvent, Message, encoder
from duly.actors.context import Context
from duly.actors.patience import Patience
from duly.actors.runtime import Actor, Mailbox
from duly.storage import alerts
from duly.storage.alerts import Alert
from duly.storage.errors import StoreUnavailableError
from duly.storage.redis import TROUBLE
from duly.wheel.durations import from_us

log = logging.getLogger("duly.alerts")

_EVERY_S = 5.0
_PAGE = 100
_SAID = {
    "silent": "task %s (%s) has completed nothing since %s",
    "auto_paused": "task %s (%s) is paused since %s: it failed too often in a row",
}


class Watcher(Actor[NoReturn]):
    """A round every five seconds."""

    name = "watcher"

    def __init__(self, context: Context) -> None:
        super().__init__(Mailbox("watcher", 1))
        self._context = context
        self._patience = Patience("looking for silent schedules", log, context.vitals.postgres)

    async def run(self) -> None:
        # Nodes that start together do not look in step.
        wait_s = _EVERY_S * random.random()
        while not await self.pause(wait_s):
            try:
                await self._round()
                self._patience.worked()
                wait_s = _EVERY_S
            except StoreUnavailableError as error:
                wait_s = self._patience.failed(error)

    async def _round(self) -> None:
        db, now = self._context.db, from_us(self._context.clock.now_us())
        outlook = await alerts.outlook(db, now)
        if not any(outlook):  # which is nearly always: one statement is enough
            self._context.vitals.open_alerts = {}
            return
        await alerts.clear(db, now)  # first: what went silent again is another alert
        while await alerts.raise_silent(db, now, _PAGE) == _PAGE:
            pass
        while news := await alerts.news(db, _PAGE):
            for alert in news:
                _log(alert)
            await self._tell(news)
        self._context.vitals.open_alerts = await alerts.open_by_kind(db)

    async def _tell(self, news: list[Alert]) -> None:
        """To whoever looks on (`GET /v1/events`); the list of alerts is there for all others."""
        if not self._context.feed.wanted:
            return
        message = Message([], alerts=[_event(alert) for alert in news])
        try:
            await self._context.streams.signals.tell_events(encoder.encode(message))
        except TROUBLE as error:
            log.info("nobody who looks on hears of %d alerts: %s", len(news), error)


def _event(alert: Alert) -> AlertEvent:
    raised = alert.cleared_at is None
    return AlertEvent(
        alert.id, alert.kind, "raised" if raised else "cleared", alert.task_id, alert.type, alert.queue,
        alert.since, alert.cleared_at or alert.raised_at,
    )  # fmt: skip


def _log(alert: Alert) -> None:
    said, about = _SAID[alert.kind], {"task_id": str(alert.task_id), "alert": alert.kind}
    if alert.cleared_at is None:
        log.error(said, alert.task_id, alert.type, alert.since.isoformat(), extra=about)
    else:
        log.info(
            "no more: " + said, alert.task_id, alert.type, alert.since.isoformat(), extra=about
        )
