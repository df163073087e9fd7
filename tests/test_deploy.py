"""The files of examples/deploy fit the settings, the command line, and the programs that read them."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from duly.nodes.cli.parser import build
from duly.nodes.settings import Settings, load

ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "examples" / "deploy"
DOCKERFILE = DEPLOY / "Dockerfile"
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
MANIFESTS: list[dict[str, Any]] = [
    one
    for path in sorted((DEPLOY / "kubernetes").glob("*.yaml"))
    for one in yaml.safe_load_all(path.read_text())
]
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
PODS = {
    one["metadata"]["name"]: one["spec"]["template"]["spec"]
    for one in MANIFESTS
    if one["kind"] == "Deployment"
}
VALUES = {
    "POSTGRES_PASSWORD": "1234",
    "VALKEY_PASSWORD": "5678",
    "DULY_TOKENS": f"me:admin:{'0' * 64}",
}
SECRET = {
    "database-url": "postgresql://duly@db/duly",
    "redis-url": "redis://redis:6379/0",
    "tokens": VALUES["DULY_TOKENS"],
}
STOP_GRACE_S = Settings().stop_grace_s
DRAIN_TIMEOUT_S = 30  # docs/worker-sdk.md


def filled(text: str) -> str:
    """With the variables that Compose would put in."""
    return re.sub(r"\$\{(\w+):\?\}", lambda match: VALUES[match[1]], text)


def instructions() -> list[str]:
    """The Dockerfile's instructions, each in a line."""
    lines = DOCKERFILE.read_text().replace("\\\n", " ").splitlines()
    return [" ".join(line.split()) for line in lines if line and not line.startswith("#")]


def pod_environment(pod: dict[str, Any]) -> dict[str, str]:
    """The environment of the pod's container, with the secret that the README makes."""
    return {
        one["name"]: one.get("value") or SECRET[one["valueFrom"]["secretKeyRef"]["key"]]
        for one in pod["containers"][0]["env"]
    }


def compose_environment(name: str) -> dict[str, str]:
    environment: dict[str, str] = COMPOSE["services"][name]["environment"]
    return {key: filled(value) for key, value in environment.items()}


def test_every_variable_is_a_setting() -> None:
    known = {f"DULY_{name.upper()}" for name in Settings.__struct_fields__}
    known |= set(
        re.findall(r"^\| `(DULY_\w+)`", (ROOT / "docs/http-targets.md").read_text(), re.MULTILINE)
    )
    files = [path for path in DEPLOY.rglob("*") if path.is_file()]
    named = {name for path in files for name in re.findall(r"\bDULY_\w+", path.read_text())}
    assert named >= {"DULY_DATABASE_URL", "DULY_REDIS_URL", "DULY_TOKENS", "DULY_HTTP_QUEUES"}
    assert named - known == set()


@pytest.mark.parametrize("name", ["node1", "node2"])
def test_a_node_of_compose_takes_its_settings(name: str) -> None:
    read = load({}, compose_environment(name), None)
    assert read.database_url == "postgresql://duly:1234@postgres:5432/duly"
    assert read.redis_url == "redis://:5678@valkey:6379/0"
    assert COMPOSE["services"][name]["ports"][0].endswith(f":{read.port}")


def test_a_node_of_kubernetes_takes_its_settings() -> None:
    pod = PODS["duly-node"]
    read = load({}, pod_environment(pod), None)
    assert read.database_url == SECRET["database-url"]
    assert [one["containerPort"] for one in pod["containers"][0]["ports"]] == [read.port]


def test_the_command_line_takes_each_command() -> None:
    commands = [one["containers"][0]["args"] for one in PODS.values()]
    commands += [
        one["command"] for one in COMPOSE["services"].values() if one["image"].startswith("duly:")
    ]
    for unit in UNITS:
        program, *command = settings_of(unit)["ExecStart"].split()
        assert program.endswith("/bin/duly")
        commands.append([one.replace("%i", "tasks:worker") for one in command])
    commands.append(json.loads(instructions()[-1].removeprefix("CMD ")))
    assert len(commands) == 8
    for command in commands:
        build().parse_args(command)


def test_stops_are_given_time() -> None:
    services = {name: COMPOSE["services"][name] for name in ("node1", "node2", "worker")}
    seconds = {name: int(one["stop_grace_period"][:-1]) for name, one in services.items()}
    assert min(seconds["node1"], seconds["node2"]) > STOP_GRACE_S
    assert seconds["worker"] > DRAIN_TIMEOUT_S
    node = PODS["duly-node"]
    slept: int = node["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert node["terminationGracePeriodSeconds"] > slept + STOP_GRACE_S
    assert PODS["duly-worker"]["terminationGracePeriodSeconds"] > DRAIN_TIMEOUT_S
    stops = {unit.name: int(settings_of(unit)["TimeoutStopSec"]) for unit in UNITS}
    assert stops["duly-node.service"] > STOP_GRACE_S
    assert stops["duly-worker@.service"] > DRAIN_TIMEOUT_S


@pytest.mark.parametrize(
    "manifest", MANIFESTS, ids=lambda one: f"{one['kind']} {one['metadata']['name']}"
)
def test_kubernetes_knows_each_field(manifest: dict[str, Any]) -> None:
    kubernetes_validate.validate(manifest, "1.30", strict=True)


def test_an_unknown_field_is_noticed() -> None:
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate({**MANIFESTS[0], "spce": {}}, "1.30", strict=True)


@pytest.mark.parametrize("pod", PODS.values(), ids=PODS)
def test_pods_have_few_rights(pod: dict[str, Any]) -> None:
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["enableServiceLinks"] is False
    rights = pod["containers"][0]["securityContext"]
    assert rights["readOnlyRootFilesystem"]
    assert rights["allowPrivilegeEscalation"] is False


def test_selectors_find_the_nodes() -> None:
    by_kind = {(one["kind"], one["metadata"]["name"]): one["spec"] for one in MANIFESTS}
    node = by_kind["Deployment", "duly-node"]
    labels = node["template"]["metadata"]["labels"]
    assert node["selector"]["matchLabels"] == labels
    assert by_kind["PodDisruptionBudget", "duly-node"]["selector"]["matchLabels"] == labels
    assert by_kind["Service", "duly"]["selector"] == labels
    worker = by_kind["Deployment", "duly-worker"]
    assert worker["selector"]["matchLabels"] == worker["template"]["metadata"]["labels"] != labels


def test_probes_ask_what_the_node_answers() -> None:
    container = PODS["duly-node"]["containers"][0]
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"


def settings_of(unit: Path) -> dict[str, str]:
    """The unit's assignments."""
    return dict(re.findall(r"^(\w+)=(.*)$", unit.read_text(), re.MULTILINE))


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_units_restart_but_not_what_is_wrong(unit: Path) -> None:
    assert settings_of(unit)["Restart"] == "always"
    assert settings_of(unit)["RestartPreventExitStatus"] == "2"
    assert settings_of(unit)["DynamicUser"] == "yes"
    lines = unit.read_text().splitlines()
    assert [line for line in lines if line and not re.match(r"#|\[\w+\]$|[A-Z]\w+=", line)] == []


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_takes_the_unit(unit: Path, tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:  # a machine without systemd, such as a Mac; the tests above hold there, too
        return
    copy = tmp_path / unit.name
    copy.write_text(unit.read_text().replace("/opt/duly/bin/duly", sys.executable))
    done = subprocess.run(
        [program, "verify", "--man=no", copy],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stderr.splitlines() if unit.name in line] == []


def test_the_image_is_not_root_and_its_base_is_pinned() -> None:
    lines = instructions()
    assert [line for line in lines if line.startswith("USER")][-1] == "USER 10001:10001"
    bases = [line.split()[1] for line in lines if line.startswith("FROM")]
    assert [base for base in bases if not re.fullmatch(r"python:3\.\d+-slim", base)] == []
    users = {pod["securityContext"]["runAsUser"] for pod in PODS.values()}
    assert users == {10001}


def test_the_image_is_made_from_every_folder_of_the_package() -> None:
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    copied = {
        line.split()[1] for line in instructions() if line.startswith("COPY") if "./" not in line
    }
    assert copied == set(tool["setuptools"]["package-dir"].values())


def test_the_image_is_of_this_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    texts = [path.read_text() for path in DEPLOY.rglob("*") if path.is_file()]
    assert {tag for text in texts for tag in re.findall(r"\bduly:(\d[\d.]*\d)", text)} == {version}
