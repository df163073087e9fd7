"""What happens to tasks, as server-sent events."""

from contextlib import suppress
from typing import Final
from uuid import UUID

from aiohttp import web

from duly.actors.broadcaster import AlertEvent, Event
from duly.actors.context import Context
from duly.nodes.api import queries
from duly.nodes.api.access import caller
from duly.nodes.api.event_hub import Client, EventHub, Newest, Wants
from duly.nodes.api.problems import too_many, unavailable
from duly.wheel.durations import to_us

PARAMETERS: Final = ("queue", "type", "task_id")

CLIENTS_MAX: Final = 200
"""Streams that one node keeps open; they take connections from the API's other clients."""

OF_ONE_TOKEN_MAX: Final = 50
"""Streams that one token may have of them."""

LIFE_S: Final = 900.0
"""Then a stream ends, so that its client has to show again that it may look on."""

_AGAIN_S: Final = 10  # after which one that was refused may try again
_HEARTBEAT_S: Final = 15.0
_LOOK_S: Final = 1.0  # whether the client is still there
_RETRY_MS: Final = 2_000  # after which a browser connects again


class EventHandlers:
    """GET /v1/events."""

    def __init__(self, context: Context, newest: Newest) -> None:
        """`newest`: makes the data of the events `stats`."""
        self._clock = context.clock
        self._hub = EventHub(context, newest)

    def routes(self) -> list[web.RouteDef]:
        """The routes of this part."""
        return [web.get("/v1/events", self.stream, allow_head=False)]

    async def close(self, _: web.Application) -> None:
        """The node stops: it does not wait for those who look on."""
        self._hub.close()

    async def stream(self, request: web.Request) -> web.StreamResponse:
        """Events until the client goes, the node stops, or the stream has lived long enough."""
        queries.known_only(request, PARAMETERS)
        wants = _wants(request)
        name = caller().name
        if name is not None and self._hub.clients_of(name) >= OF_ONE_TOKEN_MAX:
            raise too_many(f"event streams with this token: {OF_ONE_TOKEN_MAX} at a node", _AGAIN_S)
        if self._hub.clients >= CLIENTS_MAX:
            raise unavailable(f"{CLIENTS_MAX} clients look on at this node already")
        answer = web.StreamResponse(headers={"X-Accel-Buffering": "no"})  # for a proxy in between
        answer.content_type = "text/event-stream"
        with self._hub.client(wants, name) as client, suppress(ConnectionError):  # it is gone
            await answer.prepare(request)
            await answer.write(f"retry: {_RETRY_MS}\n\n".encode())
            await self._send(request, answer, client)
        return answer

    async def _send(self, request: web.Request, answer: web.StreamResponse, client: Client) -> None:
        now_s = self._clock.monotonic()
        until_s, beat_at = now_s + self._life_s(), now_s + _HEARTBEAT_S
        while not client.closed and now_s < until_s and not _is_gone(request):
            lines = await client.lines(_LOOK_S)
            now_s = self._clock.monotonic()
            if lines or now_s >= beat_at:
                data = b"".join(line.encode() for line in lines)
                await answer.write(data or b": still here\n\n")
                beat_at = now_s + _HEARTBEAT_S

    def _life_s(self) -> float:
        """How long a stream that begins now lasts: not beyond its token."""
        expires_at = caller().expires_at
        if expires_at is None:
            return LIFE_S
        return min(LIFE_S, (to_us(expires_at) - self._clock.now_us()) / 1_000_000)


def _is_gone(request: web.Request) -> bool:
    return request.transport is None or request.transport.is_closing()


def _wants(request: web.Request) -> Wants:
    queue, kind = (queries.text(request, name) for name in ("queue", "type"))
    task_id: UUID | None = queries.uuid(request.query, "task_id")

    def wants(event: Event | AlertEvent) -> bool:
        return (
            (queue is None or event.queue == queue)
            and (kind is None or event.type == kind)
            and (task_id is None or event.task_id == task_id)
        )

    return wants
