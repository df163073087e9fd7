"""Settings: where they come from, and that each wrong one is named with what is allowed."""

import hashlib
import re
import socket
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from duly.nodes.settings import Region, Settings, SettingsError, Token, load

HASH = hashlib.sha256(b"secret").hexdigest()
OTHER_HASH = hashlib.sha256(b"other").hexdigest()

# setting, right values, wrong values
NUMBERS = [
    ("port", ["0", "65535"], ["-1", "65536", "80.5", "http", "tcp://10.0.0.1:80"]),
    ("max_connections", ["1", "1000000"], ["0", "1000001", "1.5"]),
    ("request_timeout_s", ["1", "600"], ["0.9", "601", "nan"]),
    ("token_rate", ["0", "0.5", "1000000"], ["-1", "1000001", "nan"]),
    ("token_burst", ["1", "1000000"], ["0", "1.5", "1000001"]),
    ("lease_ttl_s", ["4", "60"], ["0.9", "60.1", "nan", "4s"]),
    ("lease_renew_s", ["0.05", "1"], ["0", "0.01", "16"]),
    ("horizon_s", ["5", "3600"], ["4.9", "3601", "inf"]),
    ("wheel_cap", ["1", "10000000"], ["0", "10000001", "1.5"]),
    ("sweep_every_s", ["0.05", "10"], ["0", "11"]),
    ("claim_ahead_s", ["0", "0.4"], ["-0.1", "0.5"]),
    ("dispatch_grace_s", ["1", "600"], ["0.5", "601"]),
    ("window_floor", ["1", "100000"], ["0", "100001"]),
    ("payload_limit_bytes", ["1024", "67108864"], ["1023", "67108865"]),
    ("batch_limit", ["1", "100000"], ["0", "100001"]),
    ("idempotency_ttl_s", ["1", "2592000"], ["0", "2592001"]),
    ("archive_before_drop", ["true", "false", "1"], ["", "maybe", "2"]),
    ("retention_s", ["60", "315360000"], ["59", "315360001"]),
    ("db_pool_size", ["1", "200"], ["0", "201"]),
    ("db_core_pool_size", ["1", "200"], ["0", "201"]),
    ("db_statement_timeout_s", ["0.1", "300"], ["0", "301"]),
    ("redis_timeout_s", ["0.1", "300"], ["0", "301"]),
    ("stop_grace_s", ["0", "600"], ["-1", "601"]),
]
TEXTS = [
    ("database_url", ["postgres://h/d", "postgresql:///d?host=/run"], ["mysql://h", "h", " "]),
    (
        "database_urls",
        [
            "postgres://h/d",
            "postgres://h/a,postgresql://h1,h2/b",
            "postgres://h/a , postgres://h/b",
        ],
        ["", "mysql://h/d", "postgres://h/a,postgres://h/a", "h"],
    ),
    (
        "database_url",
        [
            "postgresql://u:p@h1:5432,h2:5433/db?target_session_attrs=read-write",
            "postgresql://h1,[::1]:5433,h3/db",
            "postgresql://u:p%40q@h:/db?target_session_attrs=primary&sslmode=require",
        ],
        [
            "postgresql://h1,/db",
            "postgresql://h1:0/db",
            "postgresql://h1:1,h2:65536/db",
            "postgresql://h1:x/db",
            "postgresql://[::1/duly",
            "postgresql://h1,::1]/duly",
            "postgresql://h1,[h2]/duly",
            "postgresql:///db?host=h1,h2",
            "postgresql://h1,h2/db?target_session_attrs=any",
            "postgresql://h1/db?target_session_attrs=standby",
        ],
    ),
    ("redis_url", ["redis://h", "rediss://h:1/2", "unix:///run/r"], ["http://h", "unix://"]),
    ("redis_url", ["redis://h:65535"], ["redis://h:0", "redis://h:65536", "redis://h:x"]),
    (
        "redis_url",
        ["redis+sentinel://a/s", "redis+sentinel://u:p@a:1,b:2,[::1]:3/s/0?sentinel_password=x"],
        [
            "redis+sentinel://a",
            "redis+sentinel://a:0/s",
            "redis+sentinel://a,a/s/0",
            "redis+sentinel://a/s/x",
            "redis+sentinel://a/s/0?db=1",
            "redis+sentinel://,/s",
            "redis+sentinel://[::1/s",
            "redis+cluster://",
            "redis+cluster://a/1",
            "rediss+cluster://a?db=0",
        ],
    ),
    ("redis_url", ["redis://h/?db=3", "unix:///r?db=1"], ["redis://h/x", "redis://h?foo=bar"]),
    (
        "lease_redis_urls",
        ["rediss://a?ssl_cert_reqs=none"],
        ["redis+sentinel://a/s", "redis://a/x"],
    ),
    (
        "lease_redis_urls",
        ["redis://a", "redis://a, redis://b,redis://c", ",".join(f"redis://{n}" for n in "abcde")],
        ["", "redis://a,redis://b", "redis://a,redis://b,redis://b", "a", "redis://a,b,c"],
    ),
    (
        "lease_redis_urls",
        ["redis://a:1,redis://a:2,redis://c:1"],
        [
            "redis://a:1,redis://a:1/0,redis://c",
            "redis://h:1/6,redis://h:1/7,redis://localhost:1/6",
        ],
    ),
    ("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"], ["a b", "[::1]", "redis://h"]),
    (
        "alert_webhook_url",
        ["https://hooks.example.org/services/T/B", "http://127.0.0.1:9/x"],
        ["hooks.example.org", "ftp://h/x", "http://", "http://[::1/x"],
    ),
    ("region", ["eu", "eu-west_1.b"], ["a b", "a/b", "n" * 51, "é"]),
    (
        "regions",
        [],  # only together with region: see below
        [
            "eu",
            "=https://h",
            "eu=h",
            "eu=ftp://h",
            "eu=https://",
            "eu=https://token@h",
            "eu=https://h:0",
            "eu=https://h?a=b",
            "eu=https://[::1",
            "eu=https://h,eu=https://i",
            "e u=https://h",
            "eu=https://h",
        ],
    ),
    ("node_name", ["a-1.b:c_D"], ["a b", "n" * 101, "é"]),
    (
        "tokens",
        [f"ann:admin:{HASH}", f"ann:read:{HASH.upper()}, bo@x:submit:{OTHER_HASH},"],
        ["ann", f"ann:root:{HASH}", f":read:{HASH}", "ann:read:secret", f"ann:read:{HASH}0"],
    ),
    (
        "tokens",
        [f"ann:read:{HASH},ann:read:{OTHER_HASH}"],
        [f"ann:read:{HASH},bo:admin:{HASH}", f"ann:read:{hashlib.sha256(b'').hexdigest()}"],
    ),
    (
        "tokens",
        [
            f"ann:payload-view:{HASH}:2027-01-31T00:00Z",
            f"ann:read:{HASH}:2027-01-31T00:00:30.5+01:00,bo:submit:{OTHER_HASH}",
        ],
        [
            f"ann:read:{HASH}:",
            f"ann:read:{HASH}:2027-01-31",
            f"ann:read:{HASH}:2027-01-31T00:00",
            f"ann:read:{HASH}:2027-02-31T00:00Z",
            f"ann:read+payload:{HASH}",
        ],
    ),
    ("tls_cert", [], ["c.pem"]),  # only together with tls_key: see below
    ("tls_key", [], ["k.pem"]),
    ("log_level", ["debug", "info", "warning", "error"], ["INFO", "trace"]),
    ("log_format", ["text", "json"], ["yaml"]),
]


def toml(folder: Path, text: str) -> Path:
    path = folder / "duly.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_defaults_are_right_by_their_own_rules() -> None:
    settings = load({}, {}, None)
    assert settings == Settings()
    assert (settings.host, settings.port, settings.tokens) == ("127.0.0.1", 8080, ())
    assert (settings.database_url, settings.redis_url) == (None, None)
    assert settings.node_name == socket.gethostname()
    for name, value in msgspec.structs.asdict(settings).items():
        if isinstance(value, int | float | str):
            assert getattr(load({name: str(value)}, {}, None), name) == value


def test_each_number_and_text_setting_has_a_case_here() -> None:
    assert {case[0] for case in NUMBERS + TEXTS} == set(Settings.__struct_fields__)


@pytest.mark.parametrize(("name", "right", "wrong"), NUMBERS + TEXTS)
def test_values_and_what_is_said_of_wrong_ones(
    name: str, right: list[str], wrong: list[str]
) -> None:
    for text in right:
        load({name: text}, {}, None)
        load({}, {f"DULY_{name.upper()}": text}, None)
    for text in wrong:
        with pytest.raises(SettingsError) as caught:
            load({name: text}, {}, None)
        error = caught.value
        assert (error.setting, error.source) == (name, "--" + name.replace("_", "-"))
        assert error.allowed
        assert str(error) == f"{name} = {error.value!r} (from {error.source}): {error.allowed}"


def test_what_is_said_of_an_address_without_its_bracket() -> None:
    for name, scheme in [("database_url", "postgresql"), ("redis_url", "redis")]:
        with pytest.raises(SettingsError, match=r"must be a URL with .*IPv6 address.* in brackets"):
            load({name: f"{scheme}://[::1/duly"}, {}, None)


def test_flags_beat_the_environment_which_beats_the_file(tmp_path: Path) -> None:
    config = toml(tmp_path, 'port = 1\nhorizon_s = 11\nbatch_limit = 21\nlog_level = "debug"')
    environ = {"DULY_PORT": "2", "DULY_HORIZON_S": "12", "DULY_BATCH_LIMIT": ""}
    settings = load({"port": "3"}, environ, config)
    assert (settings.port, settings.horizon_s, settings.batch_limit) == (3, 12.0, 21)
    assert (settings.log_level, settings.wheel_cap) == ("debug", 200_000)


def test_a_value_wrong_in_a_lower_place_is_told_though_a_higher_one_is_right(
    tmp_path: Path,
) -> None:
    with pytest.raises(SettingsError, match=r"port = 'x' \(from DULY_PORT\).*from 0 to 65535"):
        load({"port": "3"}, {"DULY_PORT": "x"}, None)
    config = toml(tmp_path, "port = 70000")
    with pytest.raises(SettingsError, match=rf"port = 70000 \(from {re.escape(str(config))}\)"):
        load({"port": "3"}, {}, config)


@pytest.mark.parametrize(
    "line",
    [
        'port = "8080"',
        "port = true",
        "horizon_s = nan",
        "horizon_s = inf",
        "database_url = 5",
        "tokens = [5]",
        "host = 1",
        'node_name = ["n"]',
        "log_level = 1",
    ],
)
def test_a_file_has_values_in_their_own_type(tmp_path: Path, line: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load({}, {}, toml(tmp_path, line))
    assert caught.value.setting == line.split()[0]


def test_a_file_may_give_lists(tmp_path: Path) -> None:
    text = f'tokens = ["a:read:{HASH}"]\nlease_redis_urls = ["redis://a"]\nhorizon_s = 60'
    settings = load({}, {}, toml(tmp_path, text))
    assert settings.tokens == (Token("a", "read", HASH),)
    assert settings.lease_redis_urls == ("redis://a",)
    assert settings.horizon_s == 60.0


def test_an_unknown_key_is_an_error_with_a_suggestion(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"lease_ttl.*did you mean lease_ttl_s"):
        load({}, {}, toml(tmp_path, "lease_ttl = 4"))
    with pytest.raises(SettingsError, match=r"colour.*: no such setting$"):
        load({}, {}, toml(tmp_path, "[colour]\nport = 1"))
    with pytest.raises(SettingsError, match=r"PORT.*did you mean port"):
        load({}, {}, toml(tmp_path, "PORT = 1"))
    with pytest.raises(SettingsError, match=r"--prot.*did you mean port"):
        load({"prot": "1"}, {}, None)


@pytest.mark.parametrize("content", [b"port = ", b"\xff", None])
def test_an_unreadable_file_is_named(tmp_path: Path, content: bytes | None) -> None:
    config = tmp_path / "duly.toml"
    if content is not None:
        config.write_bytes(content)
    with pytest.raises(SettingsError, match=r"duly\.toml.*cannot be read"):
        load({}, {}, config)


def test_a_variable_that_looks_like_a_slip_is_an_error() -> None:
    with pytest.raises(
        SettingsError, match=r"DULY_DATABSE_URL.*did you mean DULY_DATABASE_URL"
    ) as e:
        load({}, {"DULY_DATABSE_URL": "postgres://u:hush@h"}, None)
    assert "hush" not in str(e.value)
    with pytest.raises(SettingsError, match=r"DULY_PROT.*did you mean DULY_PORT"):
        load({}, {"DULY_PROT": "1"}, None)
    with pytest.raises(SettingsError, match=r"DULY_port.*did you mean DULY_PORT"):
        load({}, {"DULY_port": "1"}, None)
    others = ["DULY_SERVICE_HOST", "DULY_TEST_REDIS_URL", "DULY_SERVER_USER", "DULY_POSTGRES_BIN"]
    others += ["DULY_VALKEY_BIN", "DULY_HOME", "DULY_URL", "DULY_TOKEN", "PORTS", "HOST"]
    assert load({}, dict.fromkeys(others, "x"), None) == Settings()


def test_a_renewal_is_at_most_a_quarter_of_the_lease() -> None:
    assert load({"lease_ttl_s": "2", "lease_renew_s": "0.5"}, {}, None).lease_renew_s == 0.5
    with pytest.raises(SettingsError, match=r"lease_renew_s = 0\.6 .*at most 0\.5, a quarter"):
        load({"lease_ttl_s": "2", "lease_renew_s": "0.6"}, {}, None)
    with pytest.raises(SettingsError, match=r"lease_renew_s = 1\.0 \(from the default\)"):
        load({"lease_ttl_s": "2"}, {}, None)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.org", "127.0.0.1.nip.io"])
def test_without_tokens_only_loopback_is_bound(host: str) -> None:
    with pytest.raises(SettingsError, match=r"\(from DULY_HOST\).*as long as tokens is not set"):
        load({}, {"DULY_HOST": host}, None)
    assert load({"tokens": f"a:read:{HASH}"}, {"DULY_HOST": host}, None).host == host


def test_a_certificate_comes_with_its_key() -> None:
    settings = load({"tls_cert": "c.pem", "tls_key": "k.pem"}, {}, None)
    assert (settings.tls_cert, settings.tls_key) == ("c.pem", "k.pem")
    with pytest.raises(SettingsError, match=r"tls_cert = 'c.pem' .*must come with tls_key"):
        load({"tls_cert": "c.pem"}, {}, None)
    with pytest.raises(SettingsError, match=r"tls_key = 'k.pem' .*must come with tls_cert"):
        load({}, {"DULY_TLS_KEY": "k.pem"}, None)


def test_tokens_are_parsed() -> None:
    text = f" ann:read:{HASH.upper()} , bo:admin:{OTHER_HASH}"
    expected = (Token("ann", "read", HASH), Token("bo", "admin", OTHER_HASH))
    assert load({"tokens": text}, {}, None).tokens == expected


def test_a_token_may_have_an_expiry() -> None:
    for text in ("2027-01-31T00:30+01:00", "2027-01-30T23:30:00Z"):
        (token,) = load({"tokens": f"ann:read:{HASH}:{text}"}, {}, None).tokens
        assert token == Token("ann", "read", HASH, datetime(2027, 1, 30, 23, 30, tzinfo=UTC))
        shown = load({"tokens": f"ann:read:{HASH}:{text}"}, {}, None).redacted()["tokens"]
        assert shown == ["ann:read:2027-01-30T23:30:00+00:00"]


def test_regions_and_the_tokens_they_are_asked_with() -> None:
    text = "eu=https://:hu%40sh@duly.eu.example.org:8443/, ap=http://127.0.0.1:8080/duly/,"
    settings = load({"regions": text, "region": "us"}, {}, None)
    assert settings.regions == (
        Region("eu", "https://duly.eu.example.org:8443", "hu@sh"),
        Region("ap", "http://127.0.0.1:8080/duly"),
    )
    assert settings.redacted()["regions"] == [
        "eu=https://:***@duly.eu.example.org:8443",
        "ap=http://127.0.0.1:8080/duly",
    ]
    assert "hu@sh" not in repr(settings)
    with pytest.raises(SettingsError, match=r"regions = '\*\*\*' .*must come with region"):
        load({"regions": "eu=https://:hush@h"}, {}, None)


def test_settings_cannot_be_changed() -> None:
    settings: Any = Settings()
    with pytest.raises(AttributeError):
        settings.port = 1


SECRET_URLS = [
    ("database_url", "postgres://u:hush@h/d", "postgres://u:***@h/d"),
    ("database_url", "postgres://u:hu@sh/hush@h/d", "postgres://u:***@h/d"),
    ("database_url", "postgres://u:hush@h1:1,h2:2/d", "postgres://u:***@h1:1,h2:2/d"),
    ("database_url", "postgres://h/d?password=hush&a=b", "postgres://h/d?password=***&a=b"),
    ("redis_url", "redis://:hush@h", "redis://:***@h"),
    ("redis_url", "unix:///run/r?password=hush", "unix:///run/r?password=***"),
    (
        "alert_webhook_url",
        "https://u:hush@h.example:8/services/hush?k=hush",
        "https://h.example/***",
    ),
    ("redis_url", "redis://h:1/2", "redis://h:1/2"),
]


@pytest.mark.parametrize(("name", "url", "seen"), SECRET_URLS)
def test_printing_shows_no_password(name: str, url: str, seen: str) -> None:
    settings = load({name: url}, {}, None)
    assert settings.redacted()[name] == seen
    assert "hush" not in repr(settings) + str(settings)


def test_redacted_has_every_setting_and_no_hash() -> None:
    settings = load({"tokens": f"a:read:{HASH}", "lease_redis_urls": "redis://:hush@h"}, {}, None)
    seen = settings.redacted()
    assert seen.keys() == set(Settings.__struct_fields__)
    assert (seen["tokens"], seen["lease_redis_urls"]) == (["a:read"], ["redis://:***@h"])
    assert HASH not in repr(settings)
    msgspec.json.encode(seen)


def test_errors_show_no_secret(tmp_path: Path) -> None:
    wrong = [
        {"database_url": "mysql://u:hush@h"},
        {"database_url": "u:hush@h"},
        {"database_url": "host=h password=hush"},
        {"redis_url": "redis://:hush@h:0"},
        {"redis_url": "redis://u:1?hush@h"},
        {"redis_url": "redis://u:1#hush@h"},
        {"redis_url": "redis://u:1/hush@h"},
        {"lease_redis_urls": "redis://:hush@h,redis://:hush@i"},
        {"tokens": "ann:read:hush"},
        {"region": "us", "regions": "eu=https://:hush@h,eu=https://:hush@h"},
    ]
    for flags in wrong:
        with pytest.raises(SettingsError) as caught:
            load(flags, {}, None)
        assert "hush" not in str(caught.value)
    for line in ('lease_redis_urls = ["redis://:hush@h", "x"]', 'database_url = {p = "hush"}'):
        with pytest.raises(SettingsError) as caught:
            load({}, {}, toml(tmp_path, line))
        assert "hush" not in str(caught.value)


def test_a_cluster_needs_lease_servers_of_their_own() -> None:
    with pytest.raises(SettingsError, match="must name the lease servers") as caught:
        load({}, {"DULY_REDIS_URL": "redis+cluster://u:hush@a,b"}, None)
    assert caught.value.setting == "lease_redis_urls"
    assert "hush" not in str(caught.value)
    both = {"redis_url": "rediss+cluster://u:hush@a,b", "lease_redis_urls": "redis://c"}
    settings = load(both, {}, None)
    assert settings.redis_url == both["redis_url"]
    assert "hush" not in str(settings.redacted())
    for wrong in ("redis+cluster://a", "redis+cluster://a,redis+cluster://b,redis+cluster://c"):
        with pytest.raises(SettingsError) as caught:
            load(both | {"lease_redis_urls": wrong}, {}, None)
        assert caught.value.setting == "lease_redis_urls"


def test_several_stores_and_regions_do_not_go_together() -> None:
    both = {
        "database_urls": "postgres://h/a,postgres://h/b",
        "region": "eu",
        "regions": "us=http://u:p@h",
    }
    with pytest.raises(SettingsError, match="several stores"):
        load(both, {}, None)
    with pytest.raises(SettingsError, match="begin with database_url"):
        load({"database_url": "postgres://h/c", "database_urls": both["database_urls"]}, {}, None)
