"""URLs are read once, and what could be read in two ways is refused."""

import pytest

from duly.contrib.http.places import HostPattern, Place


@pytest.mark.parametrize(
    ("text", "origin"),
    [
        ("https://api.example.org/a?b=c#d", ("https", "api.example.org", 443)),
        ("http://API.Example.org.:8080", ("http", "api.example.org", 8080)),
        ("http://192.0.2.1/", ("http", "192.0.2.1", 80)),
        ("http://[2001:db8::1]:81/", ("http", "2001:db8::1", 81)),
        ("https://bücher.example/", ("https", "xn--bcher-kva.example", 443)),
        ("https://under_score.example/", ("https", "under_score.example", 443)),
        ("http://localhost", ("http", "localhost", 80)),
    ],
)
def test_a_url_names_an_origin(text: str, origin: tuple[str, str, int]) -> None:
    assert Place.of(text).origin == origin


@pytest.mark.parametrize(
    "text",
    [
        "", "example.org", "//example.org", "ftp://example.org", "file:///etc/passwd",
        "gopher://example.org", "http://", "http:///x", "http://:80/", "https://example.org:0",
        "http://example.org:99999", "http://example.org:x", "http://user@example.org",
        "http://user:password@example.org", "http://:@example.org",
        "http://example.org\\@127.0.0.1/", "http://127.0.0.1\\.example.org", "http:\\\\example.org",
        "http://exa mple.org", "http://example.org/ x", " http://example.org", "http://a\tb",
        "http://a\r\nHost: b", "http://a\0b", "http://127.1", "http://127.1/", "http://2130706433/",
        "http://0x7f000001/", "http://0x7f.0.0.1/", "http://0177.0.0.1/", "http://127.0.0.1.",
        "http://127.0.0.256", "http://1.2.3.4.5", "http://example.0x7f", "http://[fe80::1%25eth0]/",
        "http://[::1", "http://::1/", "http://[127.0.0.1]/", "http://-.example", "http://a..b",
        "http://.a", "http://%31%32%37.0.0.1%2f", "http://a%00b", "http://ａ．example／b@c",
        "https://" + "a" * 64 + ".example", "https://example.org/" + "x" * 8_000,
    ],
)  # fmt: skip
def test_what_is_not_clear_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        Place.of(text)


@pytest.mark.parametrize(
    ("text", "host"),
    [
        # Full-width and circled digits, other dots: IDNA turns them into plain ones.
        ("http://１２７.0.0.1/", "127.0.0.1"),
        ("http://127。0。0。1/", "127.0.0.1"),
    ],
)
def test_an_address_in_disguise_is_seen_as_the_address(text: str, host: str) -> None:
    try:
        place = Place.of(text)
    except ValueError:
        return
    assert place.host == host


def matches(pattern: str, url: str) -> bool:
    return HostPattern.of(pattern).matches(Place.of(url))


def test_a_pattern_is_a_host_or_what_is_below_it() -> None:
    assert matches("api.example.org", "https://API.example.org./x")
    assert not matches("api.example.org", "https://x.api.example.org/")
    assert not matches("api.example.org", "https://api.example.org.evil.example/")
    assert matches("*.example.org", "https://a.b.example.org/")
    assert not matches("*.example.org", "https://example.org/")
    assert not matches("*.example.org", "https://evilexample.org/")
    assert matches("BÜCHER.example", "https://xn--bcher-kva.example/")
    assert matches("[2001:db8::1]", "https://[2001:0db8:0::1]/")
    assert matches("192.0.2.1", "http://192.0.2.1/")


def test_a_pattern_may_name_a_port() -> None:
    assert matches("example.org:8443", "https://example.org:8443/")
    assert not matches("example.org:8443", "https://example.org/")
    assert matches("example.org:443", "https://example.org/")
    assert matches("*.example.org:80", "http://a.example.org/")
    assert matches("example.org", "http://example.org:99/")


@pytest.mark.parametrize(
    "text",
    ["", "*", "*.", "a.*.b", "https://a", "a/b", "a:0", "a:99999", "a:x", "*.127.0.0.1", "a b", "127.1",
     "*.[::1]", "::1", "u@a"],
)  # fmt: skip
def test_a_wrong_pattern_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        HostPattern.of(text)


@pytest.mark.parametrize(
    "path", ["/%2f%2F?a=%2F&b=a/b", "/a//b/../c?x=%zz", "/?q=a+b%20c", "", "/ü"]
)
def test_path_and_query_stay_as_they_are(path: str) -> None:
    place = Place.of(f"https://example.org{path}")
    wanted = path or "/"
    assert place.url.raw_path_qs == (wanted if wanted.isascii() else "/%C3%BC")
    assert place.host == place.url.raw_host
