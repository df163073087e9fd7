"""Signing in with a token: the admin page gets a cookie, so that no script has to hold the token."""

from typing import Final

import msgspec
from aiohttp import web

from duly.actors.context import Context
from duly.nodes.api import answers, bodies, cookies
from duly.nodes.api.access import Access, caller
from duly.nodes.api.problems import Problem
from duly.nodes.settings import Role

_BODY_BYTES: Final = 16_384


class SignIn(msgspec.Struct, forbid_unknown_fields=True):
    """The token to sign in with."""

    token: str


class SessionView(msgspec.Struct):
    """Who is signed in."""

    name: str | None
    """Null on a node without tokens."""
    role: Role
    csrf: str | None
    """To be sent as `X-CSRF-Token` with each change; null if no cookie was sent: then none is needed."""


_sign_in = msgspec.json.Decoder(SignIn)


class SessionHandlers:
    """Everything under /v1/session."""

    def __init__(self, context: Context, access: Access) -> None:
        self._clock = context.clock
        self._access = access

    def routes(self) -> list[web.RouteDef]:
        """The routes of this part."""
        path = "/v1/session"
        return [
            web.get(path, self.get, allow_head=False),
            web.post(path, self.sign_in),
            web.delete(path, self.sign_out),
        ]

    async def get(self, request: web.Request) -> web.Response:
        """Who is asking."""
        who = caller()
        assert who.role is not None
        return answers.body(SessionView(who.name, who.role, await self._access.csrf(request)))

    async def sign_in(self, request: web.Request) -> web.Response:
        """A cookie for a token. Raises `Problem` 401 or 429 for one that is wrong."""
        if request.headers.get("Sec-Fetch-Site", "none") not in ("same-origin", "none"):
            raise Problem(403, "Forbidden", "a page of another site may sign nobody in")
        wanted = bodies.decode(_sign_in, await bodies.read(request, _BODY_BYTES))
        if not self._access.has_tokens:
            return answers.body(SessionView(None, "admin", None))
        token = self._access.identify(wanted.token.strip(), request.remote or "")
        made = await self._access.cookies()
        now_us = self._clock.now_us()
        cookie = made.make(token, now_us)
        answer = answers.body(SessionView(token.name, token.role, made.csrf(token, cookie)))
        _set(request, answer, cookie, cookies.life_s(token, now_us))
        return answer

    async def sign_out(self, request: web.Request) -> web.Response:
        """Take the cookie away."""
        answer = web.Response(status=204)
        _set(request, answer, "", 0)
        return answer


def _set(request: web.Request, answer: web.Response, cookie: str, life_s: int) -> None:
    """`Secure` also behind a proxy that does TLS and says so: who lies there harms only himself."""
    secure = request.secure or request.headers.get("X-Forwarded-Proto", "").lower() == "https"
    answer.set_cookie(
        cookies.NAME, cookie, max_age=life_s, path="/", httponly=True, samesite="Strict", secure=secure
    )  # fmt: skip
