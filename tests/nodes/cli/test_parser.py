"""The command line itself: help, wrong arguments, exit codes."""

import argparse
import subprocess
import sys
from collections.abc import Callable

import pytest

from duly.nodes.cli import parser
from duly.nodes.cli.errors import fail
from duly.nodes.settings import Settings

COMMANDS = [
    "up", "demo", "env", "node", "worker", "migrate", "effects-sql", "doctor", "store",
    "submit", "list", "alerts", "get", "cancel", "retry", "pause", "resume", "run-now", "runs", "ledger", "explain", "nodes",
    "workers", "queues", "queue", "bulk", "archive", "next",
    "import", "apply", "export", "simulate", "conformance", "token",
]  # fmt: skip


def sub_parsers(of: argparse.ArgumentParser | None = None) -> dict[str, argparse.ArgumentParser]:
    """The parser of each sub-command."""
    whole = of or parser.build()
    actions = [a for a in whole._actions if isinstance(a, argparse._SubParsersAction)]
    return dict(actions[0].choices)


def test_the_commands_are_these() -> None:
    assert list(sub_parsers()) == COMMANDS


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_is_found_by_its_name(command: str) -> None:
    (module,) = parser._modules_of([command, "--help"])
    assert command in sub_parsers(parser.build([module]))
    assert sum(len(commands) for commands in parser._MODULES.values()) == len(COMMANDS)


def test_a_command_does_not_wait_for_the_modules_of_others() -> None:
    code = (
        "import sys; from duly.nodes.cli.parser import build, _modules_of\n"
        "build(_modules_of(['submit'])); print('duly.nodes.node' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=True)
    assert done.stdout == b"False\n"


@pytest.mark.parametrize(
    "command",
    [
        *COMMANDS,
        "import crontab",
        "bulk cancel",
        "bulk reschedule",
        "bulk list",
        "bulk stop",
        "archive export",
        "archive list",
        "archive verify",
        "store check",
        "store move-slots",
    ],
)
def test_every_option_says_what_it_is(command: str) -> None:
    found: argparse.ArgumentParser | None = None
    for word in command.split():
        found = sub_parsers(found)[word]
    assert found is not None
    silent = [
        action.dest
        for action in found._actions
        if not action.help and action.dest != "status"  # its choices say it
    ]
    assert silent == []
    assert "%(" not in found.format_help()


def test_every_setting_has_a_line_of_help_with_its_default() -> None:
    text = " ".join(sub_parsers()["node"].format_help().split())
    assert (
        "--horizon-s VALUE How far ahead the wheel holds tasks (5 to 3600 s; default: 120)" in text
    )
    assert text.count("; default: ") == len(Settings.__struct_fields__)


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["bogus"],
        ["up", "--port", "65536"],
        ["up", "--port", "-1"],
        ["up", "--port", "http"],
        ["up", "--nodes", "0"],
        ["demo", "--count", "0"],
        ["submit"],
        ["submit", "x", "--at", "2026-01-01T00:00:00Z", "--in", "3"],
        ["submit", "x", "--priority", "high"],
        ["list", "--status", "done"],
        ["list", "--limit", "0"],
        ["get"],
        ["worker"],
        ["token"],
        ["token", "new", "shop"],
    ],
)
def test_a_wrong_command_line_ends_with_code_2(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        parser.main(argv)
    assert caught.value.code == 2
    assert "error:" in capsys.readouterr().err


def answering(monkeypatch: pytest.MonkeyPatch, act: Callable[[], int]) -> None:
    """Let `duly` do just this, whatever it is asked."""
    fake = argparse.ArgumentParser()
    fake.set_defaults(run=lambda args: act())
    monkeypatch.setattr(parser, "build", lambda modules: fake)


def test_the_code_of_the_command_is_the_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, lambda: 70)
    assert parser.main([]) == 70


def test_a_failure_is_one_line_and_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answering(monkeypatch, lambda: fail("it is broken", 1))
    assert parser.main([]) == 1
    assert capsys.readouterr().err == "duly: it is broken\n"


def test_ctrl_c_ends_with_code_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> int:
        raise KeyboardInterrupt

    answering(monkeypatch, interrupted)
    assert parser.main([]) == 130


def test_python_m_duly_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "duly", "--version"],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert done.stdout.startswith("duly 0.")


def test_a_reader_that_leaves_is_no_error() -> None:
    code = (
        "import sys; from duly.nodes.cli import parser, tasks\n"
        "tasks.SyncClient.list = lambda self, **k: ("
        "tasks.Task(id=i, type='t', status='pending') for i in range(100_000))\n"
        "sys.exit(parser.main(['list']))"
    )
    with subprocess.Popen(
        [sys.executable, "-P", "-c", code],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(60) == 0
