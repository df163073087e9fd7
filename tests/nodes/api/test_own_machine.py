"""Which requests a node without tokens takes for those of a web page that was led to it."""

import pytest
from aiohttp.test_utils import make_mocked_request

from duly.nodes.api import own_machine
from duly.nodes.api.problems import Problem

OWN = [
    "localhost", "localhost:8080", "127.0.0.1:8080", "127.9.9.9", "[::1]:8080", "[::1]", "x",
    "app.localhost:8080", "APP.LOCALHOST",
]  # fmt: skip
FOREIGN = [
    "evil.example",
    "evil.example:8080",
    "127.0.0.1.nip.io:8080",
    "evil.",
    "localhost.evil.io",
]


@pytest.mark.parametrize("host", OWN)
def test_names_that_nobody_else_can_own_are_served(host: str) -> None:
    own_machine.check(make_mocked_request("POST", "/v1/tasks", headers={"Host": host}))


@pytest.mark.parametrize("host", FOREIGN)
def test_names_that_somebody_may_have_pointed_here_are_not(host: str) -> None:
    with pytest.raises(Problem, match="without tokens is not called") as caught:
        own_machine.check(make_mocked_request("GET", "/v1/tasks", headers={"Host": host}))
    assert caught.value.status == 403


def test_pages_of_other_sites_may_link_here_and_change_nothing() -> None:
    for method, site, refused in (
        ("POST", "cross-site", True), ("POST", "same-site", True), ("PATCH", "cross-site", True),
        ("POST", "same-origin", False), ("POST", "none", False), ("GET", "cross-site", False),
    ):  # fmt: skip
        request = make_mocked_request(
            method, "/v1/tasks", headers={"Host": "localhost:8080", "Sec-Fetch-Site": site}
        )
        if refused:
            with pytest.raises(Problem, match="another site"):
                own_machine.check(request)
        else:
            own_machine.check(request)
