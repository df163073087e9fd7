"""The hosts of a database URL, and what is said when none of them serves."""

from urllib.parse import urlsplit

import pytest

from duly.storage.errors import RefusedError, StoreUnavailableError
from duly.storage.writer import Writer, hosts


@pytest.mark.parametrize(
    ("url", "alone"),
    [
        ("postgresql://u:p@h/d", [("h", "postgresql://u:p@h/d")]),
        (
            "postgres://u:p%40%2C@one,two:5433/d?sslmode=require",
            [
                ("one", "postgres://u:p%40%2C@one/d?sslmode=require"),
                ("two:5433", "postgres://u:p%40%2C@two:5433/d?sslmode=require"),
            ],
        ),
        (
            "postgresql://[::1]:5,h",
            [("[::1]:5", "postgresql://[::1]:5"), ("h", "postgresql://h")],
        ),
        ("postgresql:///d?host=/run", [("", "postgresql:///d?host=/run")]),
    ],
)
def test_each_host_by_itself(url: str, alone: list[tuple[str, str]]) -> None:
    assert hosts(url) == alone


async def test_every_host_is_named_with_its_trouble_and_no_password(
    database_url: str, unused_port: int
) -> None:
    url = urlsplit(database_url)
    # A user that is not there is refused by every server, also by one that asks for no password.
    place = f"nobody_of_duly:hush@127.0.0.1:{unused_port},{url.hostname}:{url.port}"
    with pytest.raises(StoreUnavailableError) as caught:
        await Writer(url._replace(netloc=place).geturl()).connect(30, {})
    text = str(caught.value)
    assert f"127.0.0.1:{unused_port}: " in text
    assert f"{url.hostname}:{url.port}: " in text
    assert "nobody_of_duly" in text
    assert "hush" not in text
    # The other host may come back, with the right password: not refused for good.
    assert not isinstance(caught.value, RefusedError)


async def test_refused_by_all_is_refused(database_url: str) -> None:
    url = urlsplit(database_url)._replace(path="/nowhere").geturl()
    with pytest.raises(RefusedError, match='database "nowhere" does not exist'):
        await Writer(url).connect(30, {})


async def test_a_url_that_is_none_is_refused() -> None:
    with pytest.raises(RefusedError):
        await Writer("postgresql://host:port/none").connect(30, {})
