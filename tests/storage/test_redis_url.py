"""Redis URLs: what they may say, and which of them lead to one server."""

from pathlib import Path

import pytest
from private_valkey import PrivateValkey

from duly.storage.redis import call, connect, connect_any
from duly.storage.redis_cluster import ClusterClient
from duly.storage.redis_url import check, place

NOT_DULYS = [
    "foo",
    "decode_responses",
    "socket_timeout",
    "max_connections",
    "health_check_interval",
    "protocol",
    "encoding",
    "DB",
]


@pytest.mark.parametrize("option", NOT_DULYS)
@pytest.mark.parametrize("url", ["redis://h:6379/0", "rediss://h", "unix:///run/r"])
def test_any_other_option_is_refused_by_name(url: str, option: str) -> None:
    for value in ("1", "true", "abc", ""):
        with pytest.raises(ValueError, match=f"'{option}'; there are db, username, password"):
            check(f"{url}?{option}={value}")


@pytest.mark.parametrize(
    "url",
    [
        "redis://",
        "redis://h/",
        "redis://u:p%40q@h:1/15",
        "redis://h?db=0",
        "redis://h/?db=15&username=u&password=p",
        "rediss://h/1?ssl_ca_certs=/a&ssl_certfile=/b&ssl_keyfile=/c",
        "rediss://h?ssl_cert_reqs=optional&ssl_check_hostname=false",
        "unix:///run/r.sock?db=2&password=p",
        "unix://u:p@/run/r.sock",
        "redis+sentinel://u:p@ss@a,[::1]:1/s/0",
    ],
)
async def test_right_urls_are_right_for_the_client_library_too(url: str) -> None:
    check(url)
    connect(url, name="test").connection_pool.make_connection()  # type: ignore[no-untyped-call]


@pytest.mark.parametrize(
    "url",
    [
        "redis+cluster://a",
        "redis+cluster://a:1,b,[::1]:3/",
        "redis+cluster://u:p%40q@a:1,b/0",
        "redis+cluster://:p@ss@a",
        "rediss+cluster://a,b?ssl_ca_certs=/a&ssl_check_hostname=false&ssl_cert_reqs=required",
    ],
)
async def test_right_urls_of_a_cluster_are_right_for_the_client_library_too(url: str) -> None:
    check(url)
    client = connect_any(url, name="test")
    assert isinstance(client, ClusterClient)
    assert ("ssl" in client.map.tls) == url.startswith("rediss")
    await client.aclose()


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        (None, "redis://, rediss://, unix://, redis+sentinel:// or redis+cluster://"),
        ("http://h", "redis://, rediss://, unix://, redis+sentinel:// or redis+cluster://"),
        ("redis://h/x", "path is empty or the number of a database"),
        ("redis://h/0/1", "path is empty or the number of a database"),
        ("redis://h/-1", "path is empty or the number of a database"),
        ("redis://h?db=zz", "option db is the number of a database"),
        ("redis://h?db=-1", "option db is the number of a database"),
        ("unix:///r?db=", "option db is the number of a database"),
        ("redis://h/1?db=1", "says db once"),
        ("redis://h?db=1&db=2", "says db once"),
        ("redis://h?ssl_cert_reqs=none", "'ssl_cert_reqs'"),
        ("rediss://h?ssl_cert_reqs=no", "ssl_cert_reqs is none or optional or required"),
        ("rediss://h?ssl_check_hostname=maybe", "ssl_check_hostname is true or false"),
        ("rediss://h?ssl_ca_certs=", "ssl_ca_certs is not empty"),
        ("unix://run/r", "absolute path of a socket"),
        ("redis://[::1/0", "IPv6 address in brackets"),
        ("redis://h:0", "port is from 1 to 65535"),
        ("redis://u:1?word@h", "%3F for ?"),
        ("redis://h/0#1", "%23 for #"),
        ("redis+sentinel://[::1/s", r"host:port,host:port"),
        ("redis+cluster://", "host:port,host:port"),
        ("redis+cluster://a,a:6379", "each server once"),
        ("redis+cluster://a:0", "host:port,host:port"),
        ("redis+cluster://a,,b", "host:port,host:port"),
        ("redis+cluster://a, b", "host:port,host:port"),
        ("redis+cluster://a\n", "host:port,host:port"),
        ("redis+cluster://a/1", "without a database"),
        ("redis+cluster://u:1?word@h", "without a database"),
        ("redis+cluster://a?ssl_cert_reqs=none", "'ssl_cert_reqs'; there are none"),
        ("rediss+cluster://a?db=0", "'db'; there are ssl_ca_certs"),
        ("rediss+cluster://a?ssl_cert_reqs=no", "ssl_cert_reqs is none or optional or required"),
    ],
)
def test_wrong_urls_and_what_is_said_of_them(url: object, allowed: str) -> None:
    with pytest.raises(ValueError) as caught:
        check(url)
    assert allowed in str(caught.value)


@pytest.mark.parametrize(
    "same",
    [
        ["redis://h", "redis://H:6379/5", "rediss://u:p@h./?db=1"],
        ["redis://localhost:1", "redis://127.0.0.1:1/2", "redis://[::1]:1", "redis://[0:0::1]:1/3"],
        ["redis://", "redis://LocalHost:6379"],
        ["unix:///run/r", "unix://u@/run/./r?db=1"],
    ],
)
def test_urls_of_one_server(same: list[str]) -> None:
    assert len(set(map(place, same))) == 1


def test_urls_of_different_servers() -> None:
    hosts = ["redis://a", "redis://b", "redis://a:1", "redis://127.0.0.2", "redis://[::2]"]
    urls = [*hosts, "redis://localhost", "unix:///a", "unix:///b"]
    assert len(set(map(place, urls))) == len(urls)


async def test_a_socket(tmp_path: Path) -> None:
    server = PrivateValkey(tmp_path, "--unixsocket", "r")
    server.start()
    client = connect(f"unix://{tmp_path}/r?db=3", name="test")
    try:
        await call(client, "SET", "k", "v", timeout_s=30)
        assert set(await call(client, "INFO", "keyspace", timeout_s=30)) == {"db3"}
    finally:
        await client.aclose()
        server.stop()
