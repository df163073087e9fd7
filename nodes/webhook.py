"""Tells a URL of the user's of alerts: a JSON object by POST when one is raised, and when it is cleared.

At least once each: what a node has begun to tell, and did not finish, another tells. An alert that is cleared
before it could be told is told as cleared only.
"""

import json
import logging
import random
from typing import NoReturn

import aiohttp
import msgspec

from duly.actors.context import Context
from duly.actors.patience import Patience
from duly.actors.runtime import Actor, Mailbox
from duly.nodes.setting_values import redact_webhook
from duly.storage import alerts
from duly.storage.alerts import Alert
from duly.storage.errors import StoreUnavailableError
from duly.wheel.durations import from_us

log = logging.getLogger("duly.alerts")

_EVERY_S = 2.0
_PAGE = 20
_TIMEOUT = aiohttp.ClientTimeout(total=10.0)


class RefusedError(Exception):
    """The webhook did not answer with a 2xx."""


class Webhook(Actor[NoReturn]):
    """Does nothing on a node without the setting."""

    name = "webhook"

    def __init__(self, context: Context, url: str | None) -> None:
        super().__init__(Mailbox("webhook", 1))
        self._context = context
        self._url = url
        self._reading = Patience("reading alerts", log, context.vitals.postgres)
        self._telling = Patience(f"telling {redact_webhook(url)} of alerts" if url else "", log)

    async def run(self) -> None:
        if self._url is None:
            await self.stopping.wait()
            return
        # Its own headers and no redirects: what is told goes where the setting says, or nowhere.
        async with aiohttp.ClientSession(timeout=_TIMEOUT) as session:
            wait_s = _EVERY_S * random.random()
            while not await self.pause(wait_s):
                try:
                    await self._round(session, self._url)
                    self._reading.worked()
                    wait_s = _EVERY_S
                except StoreUnavailableError as error:
                    wait_s = self._reading.failed(error)

    async def _round(self, session: aiohttp.ClientSession, url: str) -> None:
        now = from_us(self._context.clock.now_us())
        for alert in await alerts.to_tell(self._context.db, now, _PAGE):
            if self.stopping.is_set():
                return  # another node, or this one after its restart
            try:
                await _post(session, url, alert)
            except RefusedError as error:  # this one; when it is tried again, the store says
                self._telling.failed(error)
                continue
            except (aiohttp.ClientError, TimeoutError) as error:
                self._telling.failed(error)
                return
            self._telling.worked()
            await alerts.told(self._context.db, alert)


async def _post(session: aiohttp.ClientSession, url: str, alert: Alert) -> None:
    body = alert._asdict() | {
        "state": "raised" if alert.cleared_at is None else "cleared",
        "details": json.loads(alert.details),
    }
    sent = session.post(
        url,
        data=msgspec.json.encode(body),
        headers={"Content-Type": "application/json"},
        allow_redirects=False,
    )
    async with sent as answer:
        if not 200 <= answer.status < 300:
            raise RefusedError(f"it answered {answer.status}")
