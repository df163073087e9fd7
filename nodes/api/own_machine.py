"""A node without tokens is for its own machine. A web page shown on that machine is not part of it.

A browser there can be led to send requests to the node: by a form or a script of another site, or by a
name that its owner points to 127.0.0.1 (DNS rebinding), so that answers can be read too.
"""

import ipaddress
import re
from functools import lru_cache

from aiohttp import web

from duly.nodes.api.problems import Problem

_OWN_SITES = ("same-origin", "none")


def check(request: web.Request) -> None:
    """Raise `Problem` 403 for a request that a page of another site may have made."""
    if not _is_own_name(request.host):
        raise Problem(
            403, "Forbidden",
            f"a node without tokens is not called {request.host[:200]!r}: ask for localhost, or set tokens",
        )  # fmt: skip
    site = request.headers.get("Sec-Fetch-Site", "none")  # which browsers send and pages cannot set
    if request.method not in ("GET", "HEAD") and site not in _OWN_SITES:
        raise Problem(403, "Forbidden", "a page of another site may not change anything here")


@lru_cache(maxsize=64)
def _is_own_name(host: str) -> bool:
    """An address, a name under localhost, or one without a dot, which nobody can register."""
    name = re.sub(r":[0-9]*$", "", host)
    if name.startswith("[") and name.endswith("]"):
        name = name[1:-1]
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return "." not in name or name.lower().endswith(".localhost")
    return True
