"""The kit against the example workers, which keep every rule, and against broken ones, which do not."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import psutil
import pytest
import redis
from conformance_runs import EXAMPLES, WORKERS, Run, several
from private_valkey import PrivateValkey
from waiting import block_until

from duly.nodes.cli.parser import main
from duly.nodes.conformance import chosen
from duly.storage import keys

RULES = {rule.number: rule for rule in chosen(())}
"""All of them, in order."""

WAIT_S = "60"
"""For workers that keep the rules: no rule should fail because the machine is slow."""

BROKEN_WAIT_S = "15"
"""For broken ones: so long the kit waits in vain."""


class Break(NamedTuple):
    """A worker in JavaScript with one mistake."""

    old: str
    new: str
    rules: str
    """Which it breaks."""
    kept: str = "2.3"
    """One that it keeps, if there is one."""


BREAKS = {
    "never dies": Break('JSON.stringify(facts), "PX", 10_000', "JSON.stringify(facts)", "1.3"),
    "hides its queues": Break("queues: [queue], ", "", "1.2"),
    "takes too much": Break('"COUNT", room', '"COUNT", room + 3', "2.2"),
    "never looks at what is pending": Break("running.has(entry) ||", "true ||", "2.4"),
    "makes the group once": Break(
        'await reader.call("XGROUP"', 'if (!audit.made) audit.made = await reader.call("XGROUP"', "2.5"
    ),
    "runs what comes twice twice": Break("twin ? twin.over", "false ? twin.over", "2.8"),
    "does not look at the token": Break("|| known !== task.token", "", "3.1 3.2"),
    "does not ask": Break('task.confirm === "1"', "false", "3.3"),
    "starts what was refused": Break("status === 200 || status === 409) return status", "status) return 200", "3.4"),
    "makes a start_id for each question": Break(
        "method: \"POST\", headers, body,",
        'method: "POST", headers, body: body.replace(/"start_id":"/, `$&${Date.now()}`),',
        "3.5",
    ),
    "reports seconds": Break("finished: Date.now() }", "finished: Date.now() / 1000 }", "4.1"),
    "keeps its entries": Break('["XDEL", tasks, entry], ', "", "4.2", ""),
    "does not say why": Break('JSON.stringify({ type, message:', 'JSON.stringify({ text:', "4.3"),
    "lets the unreadable be retried": Break('error.message, { retry: 0 }', "error.message", "4.4"),
    "tells another's token": Break("id: task.id, token: task.token", 'id: task.id, token: "12"', "4.1", ""),
    "gives up when a report fails": Break(
        'await surely("reporting", () => commands.send(steps))',
        "await commands.send(steps).catch(() => new Promise(() => {}))",
        "4.6 4.8",
    ),
    "fails what it does not know": Break(
        '{ outcome: "snoozed", delay: stopping ? 0 : 5 });',
        '{ outcome: "failed" });',
        "4.7",
    ),
    "has all the time": Break('"timed_out");', '"").unref(); clearTimeout(timer);', "5.1"),
    "cannot be told to stop": Break('stop("cancelled")', "0", "6.1"),
    "stops the wrong attempt": Break("&& task.token === token) stop", ") stop", "6.2"),
    "ends at an odd message": Break("exec(message)?.[1]", "exec(message)[1]", "6.3"),
    "leaves at once": Break("stopping = true; wake();", "process.exit(0);", "7.1"),
    "goes on after SIGTERM": Break("stopping = true; wake();", "wake();", "7.2"),
    "leaves its key": Break('await commands.call("DEL"', 'await commands.call("GET"', "7.3"),
    "has one name for ever": Break("-${process.pid}-${crypto.randomBytes(4).toString(\"hex\")}", "", "7.4"),
}  # fmt: skip
"""Each mistake by what it is."""


@pytest.fixture(scope="module")
def kept() -> dict[str, Run]:
    """What the kit says of the examples."""
    runs = {name: ["--wait", WAIT_S, "--", *words] for name, words in WORKERS.items()}
    return asyncio.run(several(runs))


@pytest.mark.parametrize("language", WORKERS)
def test_the_example_keeps_every_rule(kept: dict[str, Run], language: str) -> None:
    run = kept[language]
    assert run.failed == {}, run.errors[-3000:]
    assert run.code == 0
    left = {r["number"]: r["detail"] for r in run.said["rules"] if r["verdict"] == "not tried"}
    assert run.passed | left.keys() == RULES.keys()
    assert left.keys() == ({"2.8"} if language == "shell" else set())


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """What the kit says of each broken worker; it is tried by one rule that it keeps, too."""
    folder = tmp_path_factory.mktemp("broken")
    text = (EXAMPLES / "worker.js").read_text()
    runs = {}
    for name, one in BREAKS.items():
        assert one.old in text, name
        program = folder / f"{name}.js"
        program.write_text(text.replace(one.old, one.new))
        rules = [word for rule in f"{one.rules} {one.kept}".split() for word in ("--rule", rule)]
        runs[name] = ["--wait", BROKEN_WAIT_S, *rules, "--", "node", str(program)]
    return asyncio.run(several(runs))


@pytest.mark.parametrize("name", BREAKS)
def test_a_broken_worker_fails_the_right_rules(broken: dict[str, Run], name: str) -> None:
    run = broken[name]
    assert set(run.failed) == set(BREAKS[name].rules.split()), run.errors[-3000:]
    assert run.passed == set(BREAKS[name].kept.split())
    assert run.code == 1


def test_the_rules_in_the_docs_are_these() -> None:
    page = (EXAMPLES.parents[1] / "docs" / "conformance.md").read_text()
    rows = re.findall(r"^\| (\d\.\d) \| (.+?) \|", page, re.MULTILINE)
    assert rows == [(rule.number, rule.title) for rule in RULES.values()]


def test_the_sections_of_the_rules_are_those_of_the_protocol() -> None:
    page = (EXAMPLES.parents[1] / "docs" / "worker-protocol.md").read_text()
    sections = re.findall(r"^## (\d)\. ", page, re.MULTILINE)
    assert sections == sorted({number.split(".")[0] for number in RULES})


def test_the_shell_example_hides_a_password_from_the_list_of_processes(
    valkey: PrivateValkey,
) -> None:
    user, password = "a:b", "p@ss 100%/ü\\"
    secret = f"{quote(user, safe='')}:{quote(password, safe='')}@"
    env = {**os.environ, "DULY_REDIS_URL": valkey.url.replace("//", f"//{secret}")}
    with redis.Redis.from_url(valkey.url, socket_timeout=10) as connection:
        connection.acl_setuser(
            user, True, passwords=f"+{password}", keys="*", channels="*", commands=["+@all"]
        )
        connection.acl_setuser("default", False)  # this connection stays
        with subprocess.Popen(WORKERS["shell"], env=env, stderr=subprocess.DEVNULL) as worker:
            try:
                block_until(
                    lambda: connection.pubsub_channels(keys.control("*")), 60, "the worker listens"
                )
                block_until(lambda: connection.keys(keys.worker("*")), 60, "the worker lives")
                family = [psutil.Process(worker.pid), *psutil.Process(worker.pid).children(True)]
                shown = [" ".join(words) for one in family if (words := _words(one))]
            finally:
                worker.terminate()
    assert any("SUBSCRIBE" in line for line in shown)
    assert not [line for line in shown if "p@ss" in line or secret in line]


def _words(process: psutil.Process) -> list[str]:
    try:
        words: list[str] = process.cmdline()
    except psutil.NoSuchProcess:
        return []
    return words


# How the kit itself behaves


def kit(*words: str) -> subprocess.CompletedProcess[str]:
    """`duly conformance` to its end."""
    command = [sys.executable, "-P", "-m", "duly", "conformance", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def test_it_lists_its_rules() -> None:
    done = kit("--list")
    assert done.returncode == 0
    assert [line.split()[0] for line in done.stdout.splitlines()] == list(RULES)


def test_a_person_reads_what_was_found() -> None:
    done = kit("--rule", "2.1", "--rule", "3", "--wait", WAIT_S, "--", *WORKERS["javascript"])
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == f"2.1  pass  {RULES['2.1'].title}"
    assert [line.split()[0] for line in lines[1:-1]] == ["3.1", "3.2", "3.3", "3.4", "3.5"]
    assert lines[-1].endswith(": 6 passed, 0 failed, 0 not tried")


def test_without_a_command_it_tries_a_worker_that_a_person_starts(valkey: PrivateValkey) -> None:
    command = [sys.executable, "-P", "-m", "duly", "conformance", "--json", "--redis-url", valkey.url,
               "--wait", WAIT_S, "--rule", "1.2", "--rule", "1.4", "--rule", "4.8", "--rule", "7.1"]  # fmt: skip
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as waiting:
        assert waiting.stderr is not None
        env = dict(re.findall(r"(DULY_\w+)=(\S+)", waiting.stderr.readline()))
        direct = {**env, "DULY_REDIS_URL": valkey.url}
        with subprocess.Popen(WORKERS["javascript"], env={**os.environ, **direct}) as worker:
            said = json.loads(waiting.communicate(timeout=120)[0])
            worker.kill()
    verdicts = {rule["number"]: rule["verdict"] for rule in said["rules"]}
    assert verdicts == {"1.2": "pass", "1.4": "not tried", "4.8": "not tried", "7.1": "not tried"}
    assert waiting.returncode == 0


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--rule", "9.9", "--", "true"], "there is no rule 9.9"),
        (["--", "/no/such/program"], "cannot start /no/such/program"),
        (["--", "false"], "the worker ended with code 1"),
        (["--redis-url", "redis://:sesame@127.0.0.1:1", "--", "true"], "does not do"),
    ],
)
def test_a_run_that_cannot_begin_says_why(words: list[str], reason: str) -> None:
    done = kit(*words)
    assert done.returncode == 1
    assert reason in done.stderr
    assert "Traceback" not in done.stderr
    assert "sesame" not in done.stderr


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--redis-url", "http://:sesame@127.0.0.1:1"], "--redis-url"),
        (["--redis-url", "redis://:sesame@127.0.0.1:port"], "--redis-url"),
        (["--queue", "a b"], "'a b' is no name of a queue"),
        (["--wait", "0"], "--wait: '0' is not a number of seconds from 1 to 3600"),
        (["--listen", "70000"], "--listen"),
    ],
)
def test_a_wrong_argument_is_told_in_one_line(
    words: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(["conformance", *words, "--", "true"])
    except SystemExit as ended:  # argparse
        code = int(str(ended.code))
    said = capsys.readouterr().err.splitlines()
    assert code == 2
    assert reason in said[-1]
    assert "sesame" not in "".join(said)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_ended_leaves_nothing(number: signal.Signals, tmp_path: Path) -> None:
    # All rules: with a few it may be at its end before the signal comes.
    command = [sys.executable, "-P", "-m", "duly", "conformance", "--wait", WAIT_S, "--",
               sys.executable, str(EXAMPLES / "worker.py")]  # fmt: skip
    folder = tmp_path / "a folder"
    folder.mkdir()
    env = {**os.environ, "TMPDIR": str(folder)}
    with subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        assert " pass " in run.stdout.readline(), run.communicate(timeout=60)
        family = psutil.Process(run.pid).children(recursive=True)
        run.send_signal(number)
        _, errors = run.communicate(timeout=60)
    assert run.returncode == 128 + number
    assert "Traceback" not in errors
    assert len(family) >= 2, "the server and the worker"
    _, left = psutil.wait_procs(family, timeout=30)
    assert left == []
    assert list(folder.iterdir()) == []


def test_it_leaves_a_queue_alone_that_is_in_use(valkey: PrivateValkey) -> None:
    with redis.Redis.from_url(valkey.url, socket_timeout=10) as connection:
        connection.sadd(keys.QUEUES, "busy")
        done = kit("--queue", "busy", "--redis-url", valkey.url, "--", *WORKERS["javascript"])
        assert done.returncode == 1
        assert "queue 'busy' is in use" in done.stderr
        kit(
            "--queue",
            "idle",
            "--redis-url",
            valkey.url,
            "--rule",
            "2.1",
            "--",
            *WORKERS["javascript"],
        )
        assert [key for key in connection.keys("*") if b"{idle}" in key] == []


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[PrivateValkey]:
    """A server of the test's own."""
    server = PrivateValkey(tmp_path)
    server.start()
    yield server
    server.stop()
