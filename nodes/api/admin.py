"""The admin page's files. They are open to everybody: what they show, the browser has to ask the API for."""

import hashlib
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final, NamedTuple

from aiohttp import web

from duly.nodes.api.problems import not_found

_TYPES: Final = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".txt": "text/plain",
}

_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)
"""Nothing inline, nothing from elsewhere."""

_HEADERS: Final = {
    "Cache-Control": "no-cache",  # to be asked for again, and answered 304 if it is the same
    "Content-Security-Policy": _POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class _File(NamedTuple):
    body: bytes
    content_type: str
    etag: str


class AdminHandlers:
    """Everything under /admin. Each view is a path of its own; the page finds out which it is."""

    def __init__(self) -> None:
        self._files = dict(_read(files("duly.nodes.admin")))

    def routes(self) -> list[web.RouteDef]:
        """The routes of this part."""
        return [
            web.get("/admin", self.page, allow_head=False),
            web.get("/admin/static/{file:.+}", self.file, allow_head=False),
            web.get("/admin/{view:.*}", self.page, allow_head=False),
        ]

    async def page(self, request: web.Request) -> web.Response:
        """The page, whatever the view."""
        return self._answer(request, self._files["index.html"])

    async def file(self, request: web.Request) -> web.Response:
        """A style sheet or a module. Raises `Problem` 404."""
        name = request.match_info["file"]
        if name not in self._files:
            raise not_found(f"file {name[:200]}")
        return self._answer(request, self._files[name])

    def _answer(self, request: web.Request, file: _File) -> web.Response:
        headers = {**_HEADERS, "ETag": f'"{file.etag}"'}
        known = request.if_none_match or ()
        if any(one.value == file.etag for one in known):
            return web.Response(status=304, headers=headers)
        return web.Response(
            body=file.body, content_type=file.content_type, charset="utf-8", headers=headers
        )


def _read(folder: Traversable, path: str = "") -> list[tuple[str, _File]]:
    """Every file under a folder that browsers may have, by its path."""
    found: list[tuple[str, _File]] = []
    for entry in folder.iterdir():
        name = f"{path}{entry.name}"
        if entry.is_dir():
            found += _read(entry, f"{name}/")
        elif kind := _TYPES.get(f".{name.rpartition('.')[2]}"):
            body = entry.read_bytes()
            found.append((name, _File(body, kind, hashlib.sha256(body).hexdigest()[:32])))
    return found
