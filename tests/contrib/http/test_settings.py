"""Settings of the worker for HTTP targets come from the environment, checked."""

import subprocess
import sys
from ipaddress import ip_network
from pathlib import Path

import msgspec
import pytest

from duly.contrib import http
from duly.contrib.http.places import HostPattern
from duly.contrib.http.settings import _READERS, Settings, load
from duly.nodes.settings import SettingsError

SECRET = "0123456789abcdef0123456789abcdef"


def test_without_any_there_are_the_defaults() -> None:
    assert load({"DULY_HTTP_SECRETS": " ", "DULY_URL": "x", "PATH": "y"}) == Settings()


def test_every_setting_is_read() -> None:
    read = load(
        {
            "DULY_HTTP_QUEUES": "web, mail",
            "DULY_HTTP_CONCURRENCY": "7",
            "DULY_HTTP_SECRETS": f"{SECRET},{SECRET}2",
            "DULY_HTTP_ALLOW_HOSTS": "api.example.org, *.example.com:8443",
            "DULY_HTTP_ALLOW_NETWORKS": "10.1.0.0/16,::1/128",
            "DULY_HTTP_CA_FILE": "/etc/ca.pem",
            "DULY_HTTP_BODY_BYTES": "0",
            "DULY_HTTP_DEADLINE_MAX_S": "0.5",
            "DULY_HTTP_RETRY_AFTER_MAX_S": "60",
        }
    )
    assert read == Settings(
        queues=("web", "mail"),
        concurrency=7,
        secrets=(SECRET, f"{SECRET}2"),
        allow_hosts=(
            HostPattern("api.example.org", False, None),
            HostPattern("example.com", True, 8443),
        ),
        allow_networks=(ip_network("10.1.0.0/16"), ip_network("::1/128")),
        ca_file="/etc/ca.pem",
        body_bytes=0,
        deadline_max_s=0.5,
        retry_after_max_s=60,
    )
    assert set(_READERS) == set(Settings.__struct_fields__)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("QUEUES", "a,,b"), ("QUEUES", "a b"), ("CONCURRENCY", "0"), ("CONCURRENCY", "1.5"),
        ("SECRETS", "short"), ("SECRETS", f"{SECRET},{SECRET}"), ("ALLOW_HOSTS", "https://a"),
        ("ALLOW_HOSTS", "*"), ("ALLOW_NETWORKS", "10.0.0.1/8"), ("ALLOW_NETWORKS", "all"),
        ("BODY_BYTES", "32769"), ("DEADLINE_MAX_S", "nan"), ("DEADLINE_MAX_S", "inf"),
        ("RETRY_AFTER_MAX_S", "0"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=f"DULY_HTTP_{name} = ") as caught:
        load({f"DULY_HTTP_{name}": value})
    assert (value in str(caught.value)) == (name != "SECRETS")


def test_a_misspelt_variable_is_no_open_door() -> None:
    with pytest.raises(SettingsError, match="did you mean DULY_HTTP_ALLOW_HOSTS"):
        load({"DULY_HTTP_ALLOWED_HOSTS": "api.example.org"})


def test_secrets_are_not_printed() -> None:
    assert SECRET not in repr(Settings(secrets=(SECRET,)))


def test_certificates_that_cannot_be_read_stop_the_start(tmp_path: Path) -> None:
    empty = tmp_path / "empty.pem"
    empty.touch()
    for path in (tmp_path / "none.pem", empty):
        with pytest.raises(SettingsError, match="DULY_HTTP_CA_FILE"):
            http.handler(Settings(ca_file=str(path)))


def test_the_settings_of_a_node_do_not_mind(monkeypatch: pytest.MonkeyPatch) -> None:
    from duly.nodes import settings as of_a_node

    for name in msgspec.structs.asdict(Settings()):
        of_a_node.load({}, {f"DULY_HTTP_{name.upper()}": "x"}, None)


# The command


def duly_worker(env: dict[str, str]) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "duly", "worker", "duly.contrib.http"],
        env=env, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    return done.returncode, done.stderr


def test_the_command_says_what_is_wrong() -> None:
    code, said = duly_worker({})
    assert (code, "DULY_REDIS_URL is not set" in said) == (2, True), said
    redis = {"DULY_REDIS_URL": "redis://localhost"}
    code, said = duly_worker({**redis, "DULY_HTTP_ALLOW_HOSTS": "*"})
    assert (code, "DULY_HTTP_ALLOW_HOSTS = '*'" in said) == (2, True), said
    code, said = duly_worker({"DULY_REDIS_URL": "nonsense"})
    assert (code, "redis_url must be" in said, "nonsense" in said) == (2, True, False), said
    assert "Traceback" not in said


def test_the_handler_alone_needs_no_settings() -> None:
    code = "from duly.contrib import http; http.handler(); print(hasattr(http, 'nothing'))"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        env={}, capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert done.stdout == "False\n"
