"""The options in the query of a Redis URL: which there are, and how they are checked."""

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl

NUMBER: Final = r"[0-9]{1,9}"

# Each option, and what its value must look like. The rest is Duly's own: time limits, pools, decoding.
TLS_OPTIONS: Final = {
    "ssl_ca_certs": ".+",
    "ssl_certfile": ".+",
    "ssl_keyfile": ".+",
    "ssl_cert_reqs": "none|optional|required",
    "ssl_check_hostname": "true|false",
}


def read(
    query: str, allowed: Mapping[str, str], given: frozenset[str] = frozenset()
) -> dict[str, str]:
    """The options in `query`, each once; `given`: those that the URL has said before.

    Raises ValueError that says what is allowed.
    """
    seen: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in allowed:
            there_are = ", ".join(allowed) or "none"
            raise ValueError(f"a URL without the option {name!r}; there are {there_are}")
        if name in seen or name in given:
            raise ValueError(f"a URL that says {name} once")
        if not re.fullmatch(allowed[name], value):
            raise ValueError(f"a URL whose option {name} is {_meaning(allowed[name])}")
        seen[name] = value
    return seen


def _meaning(pattern: str) -> str:
    words = {NUMBER: "the number of a database", ".+": "not empty"}
    return words.get(pattern, pattern.replace("|", " or "))
