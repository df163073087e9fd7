"""Where a request may go, also by redirects and by names whose address changes."""

import socket
from collections.abc import Callable
from typing import Any

import pytest
from delivery_rig import LOOPBACK, SECRET, deliver
from hostile_server import Hostile, Play, answers, hostile, redirects

from duly.contrib import http
from duly.contrib.http import ConnectionFailedError, RefusedError, UnexpectedStatusError
from duly.contrib.http.places import HostPattern

SECRETS = {"Authorization": "Bearer x", "Cookie": "a=b", "X-Api-Key": "k"}
HARMLESS = {"Accept": "text/plain", "Content-Type": "text/x-own", "User-Agent": "me"}


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[list[str]]]:
    """Names and the addresses that each look-up of them gives, in turn; the last one stays."""
    known: dict[str, list[list[str]]] = {}
    real = socket.getaddrinfo

    def look_up(host: Any, port: Any, *args: Any, **options: Any) -> Any:
        if host not in known:
            return real(host, port, *args, **options)
        given = known[host]
        addresses = given.pop(0) if len(given) > 1 else given[0]
        kinds = [socket.AF_INET6 if ":" in a else socket.AF_INET for a in addresses]
        rest = {socket.AF_INET6: (0, 0), socket.AF_INET: ()}
        return [
            (kind, socket.SOCK_STREAM, 6, "", (address, port, *rest[kind]))
            for kind, address in zip(kinds, addresses, strict=True)
        ]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return known


# Addresses


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "[::1]", "169.254.169.254", "10.0.0.1", "[::ffff:127.0.0.1]", "0.0.0.0", "[::]",
     "[64:ff9b::7f00:1]", "localhost", "100.100.100.200"],
)  # fmt: skip
async def test_inner_addresses_are_refused_by_default(host: str) -> None:
    async with hostile(answers()) as server:
        with pytest.raises(RefusedError, match="which is not connected to"):
            await deliver(f"http://{host}:{server.port}/", settings=http.Settings())
        assert server.got == []


async def test_a_name_with_an_inner_address_is_refused_without_telling_it(
    names: dict[str, list[list[str]]], caplog: pytest.LogCaptureFixture
) -> None:
    names["inside.example"] = [["10.1.2.3"]]
    with pytest.raises(RefusedError) as caught:
        await deliver("http://inside.example/", settings=http.Settings())
    assert str(caught.value) == "inside.example has a private address, which is not connected to"
    assert "inside.example has the address 10.1.2.3" in caplog.text


async def test_an_address_that_changes_after_the_look_up_does_not_count(
    names: dict[str, list[list[str]]],
) -> None:
    """What is connected to is what was checked, and each connection is checked."""
    async with hostile(answers(body=b"ok")) as server:
        names["rebind.example"] = [["127.0.0.1"], ["127.0.0.2"]]
        url = f"http://rebind.example:{server.port}/"
        assert (await deliver(url))["body"] == "ok"
        with pytest.raises(RefusedError, match="loopback"):
            await deliver(url)
        assert len(server.got) == 1


async def test_of_several_addresses_only_those_allowed_are_tried(
    names: dict[str, list[list[str]]],
) -> None:
    async with hostile(answers(body=b"ok")) as server:
        names["mixed.example"] = [["::1", "127.0.0.2", "127.0.0.1"]]
        assert (await deliver(f"http://mixed.example:{server.port}/"))["body"] == "ok"


async def test_a_name_that_is_not_known_is_tried_again() -> None:
    with pytest.raises(
        ConnectionFailedError, match=r"the name nothing\.invalid cannot be looked up"
    ):
        await deliver("http://nothing.invalid/")


async def test_the_proxy_of_the_environment_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    async with hostile(answers(body=b"ok")) as server:
        for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, "http://127.0.0.1:1")
        assert (await deliver(f"http://127.0.0.1:{server.port}/"))["body"] == "ok"


# Hosts


def only(*patterns: str) -> http.Settings:
    hosts = tuple(map(HostPattern.of, patterns))
    return http.Settings(allow_networks=LOOPBACK, allow_hosts=hosts)


async def test_with_a_list_no_other_host_is_asked(names: dict[str, list[list[str]]]) -> None:
    names["a.example"] = names["b.example"] = [["127.0.0.1"]]
    async with hostile(answers(body=b"ok")) as server:
        here = f"http://a.example:{server.port}/"
        assert (await deliver(here, settings=only("a.example")))["body"] == "ok"
        for other in (f"http://b.example:{server.port}/", f"http://127.0.0.1:{server.port}/"):
            with pytest.raises(RefusedError, match="not among the hosts that are allowed"):
                await deliver(other, settings=only("a.example"))
        with pytest.raises(RefusedError, match="not among the hosts"):
            await deliver(here, settings=only("a.example:81"))
        assert len(server.got) == 1


async def test_a_list_of_hosts_allows_no_inner_address(names: dict[str, list[list[str]]]) -> None:
    names["a.example"] = [["127.0.0.1"]]
    settings = http.Settings(allow_hosts=(HostPattern.of("a.example"),))
    with pytest.raises(RefusedError, match="loopback"):
        await deliver("http://a.example/", settings=settings)


# Redirects


@pytest.mark.parametrize(
    "target",
    ["http://169.254.169.254/latest/meta-data/", "http://[::1]:{port}/", "http://127.0.0.2:{port}/",
     "http://0.0.0.0:{port}/", "http://[::ffff:127.0.0.1]:{port}/", "//127.0.0.2:{port}/x",
     "http://localhost.localdomain.:{port}/"],
)  # fmt: skip
async def test_a_redirect_to_an_inner_address_is_refused(
    target: str, names: dict[str, list[list[str]]]
) -> None:
    names["localhost.localdomain."] = names["localhost.localdomain"] = [["127.0.0.3"]]
    async with hostile(redirects(to=target)) as server:
        with pytest.raises(RefusedError, match="which is not connected to"):
            await deliver(f"http://127.0.0.1:{server.port}/")
        assert len(server.got) == 1


@pytest.mark.parametrize(
    "target",
    ["file:///etc/passwd", "ftp://127.0.0.1/", "gopher://127.0.0.1:{port}/", "http://127.1:{port}/",
     "http://2130706433:{port}/", "http://u:p@127.0.0.1:{port}/", "http://[::1", "javascript:1",
     "http://127.0.0.1\\@x/", "http://127.0.0.1/ x"],
)  # fmt: skip
async def test_a_redirect_to_what_is_no_clear_url_is_refused(target: str) -> None:
    async with hostile(redirects(to=target)) as server:
        with pytest.raises(RefusedError, match="redirects to a URL that is refused"):
            await deliver(f"http://127.0.0.1:{server.port}/")
        assert len(server.got) == 1


async def test_a_redirect_to_a_host_that_is_not_listed_is_refused(
    names: dict[str, list[list[str]]],
) -> None:
    names["a.example"] = names["b.example"] = [["127.0.0.1"]]
    async with hostile(redirects(to="http://b.example:{port}/")) as server:
        with pytest.raises(RefusedError, match=r"b\.example:.* is not among the hosts"):
            await deliver(f"http://a.example:{server.port}/", settings=only("a.example"))
        assert len(server.got) == 1


@pytest.mark.parametrize("limit", [1, 3, 10])
async def test_a_loop_of_redirects_ends(limit: int) -> None:
    async with hostile(redirects(to="/again")) as server:
        with pytest.raises(RefusedError, match=f"redirects after {limit} redirects once more"):
            await deliver(f"http://127.0.0.1:{server.port}/", redirects=limit)
        assert len(server.got) == limit + 1


async def test_redirects_may_be_switched_off() -> None:
    async with hostile(redirects(to="/again")) as server:
        with pytest.raises(
            UnexpectedStatusError, match=r"^307 .*, a redirect that is not followed"
        ):
            await deliver(f"http://127.0.0.1:{server.port}/", redirects=0)
        assert len(server.got) == 1


def once(status: int, to: str = "/there") -> Callable[[Hostile], Play]:
    """A redirect for the first request, an answer for the next."""

    def make(server: Hostile) -> Play:
        first, then = redirects(status=status, to=to)(server), answers(body=b"there")(server)

        async def play(got: Any, writer: Any) -> None:
            await (then if len(server.got) > 1 else first)(got, writer)

        return play

    return make


@pytest.mark.parametrize("status", [307, 308])
async def test_method_and_body_are_kept_where_the_status_says_so(status: int) -> None:
    async with hostile(once(status)) as server:
        result = await deliver(f"http://127.0.0.1:{server.port}/", body="b", headers=SECRETS)
    assert (result["body"], result["redirects"]) == ("there", 1)
    assert [got.line for got in server.got] == ["POST / HTTP/1.1", "POST /there HTTP/1.1"]
    assert {got.body for got in server.got} == {b"b"}
    assert server.got[1].headers["authorization"] == "Bearer x"  # it is the same origin


async def test_a_303_is_asked_for_with_get() -> None:
    settings = http.Settings(allow_networks=LOOPBACK, secrets=(SECRET,))
    async with hostile(once(303)) as server:
        url = f"http://127.0.0.1:{server.port}/"
        await deliver(url, body="b", headers=SECRETS | HARMLESS, settings=settings)
    first, second = server.got
    assert (second.line, second.body) == ("GET /there HTTP/1.1", b"")
    assert "content-type" not in second.headers
    assert second.headers["cookie"] == "a=b"
    assert second.headers["duly-signature"] != first.headers["duly-signature"]


@pytest.mark.parametrize("status", [301, 302])
async def test_a_delivery_never_turns_into_a_get(status: int) -> None:
    """Its 200 would hide that nothing was delivered."""
    async with hostile(once(status)) as server:
        url = f"http://127.0.0.1:{server.port}/"
        with pytest.raises(
            UnexpectedStatusError, match=f"^{status} .*redirect that is not followed"
        ):
            await deliver(url, body="b")
    async with hostile(once(status)) as server:
        url = f"http://127.0.0.1:{server.port}/"
        assert (await deliver(url, method="GET"))["body"] == "there"


async def test_what_may_be_secret_does_not_go_to_another_host(
    names: dict[str, list[list[str]]],
) -> None:
    """Nor does it come back when a later redirect leads to the first host again."""
    names["a.example"] = names["b.example"] = [["127.0.0.1"]]

    def make(server: Hostile) -> Play:
        plays = [
            redirects(to="http://b.example:{port}/1")(server),
            redirects(to="http://a.example:{port}/2")(server),
            answers()(server),
        ]

        async def play(got: Any, writer: Any) -> None:
            await plays[len(server.got) - 1](got, writer)

        return play

    settings = http.Settings(allow_networks=LOOPBACK, secrets=(SECRET,))
    async with hostile(make) as server:
        url = f"http://a.example:{server.port}/"
        await deliver(url, body="b", headers=SECRETS | HARMLESS, settings=settings)
    secret = {name.lower() for name in SECRETS} | {"duly-signature"}
    assert secret <= set(server.got[0].headers)
    for got in server.got[1:]:
        assert not secret & set(got.headers)
        assert got.headers["content-type"] == "text/x-own"
        assert got.headers["idempotency-key"] == server.got[0].headers["idempotency-key"]
    assert [got.headers["host"].partition(":")[0] for got in server.got] == [
        "a.example", "b.example", "a.example",
    ]  # fmt: skip


async def test_another_port_is_another_origin() -> None:
    async with hostile(answers()) as other:
        async with hostile(redirects(to=f"http://127.0.0.1:{other.port}/")) as server:
            await deliver(f"http://127.0.0.1:{server.port}/", headers=SECRETS)
        assert "authorization" not in other.got[0].headers
