"""Read crontab(5) text: which lines are jobs, what they run, and which cannot be taken.

Pure: text in, lines out. The rules are those of crontab(5) as Debian's cron and cronie have them:

- A line is a comment (`#` first), an environment setting (`NAME = value`, quotes around either), or
  a job: five time fields or `@daily` and the like, in a system crontab a user name, and a command.
- A setting holds for the jobs below it. `CRON_TZ` is also the time zone of their times (cronie's
  rule); `TZ` is like any other and changes no times.
- In a command the first `%` ends the command; what follows is its standard input, in which each
  `%` is a newline. `\\%` is a plain percent sign in both.
- A `-` before the first field, which keeps the job out of cron's log, is dropped.

Whether the times make sense is not judged here: `Job.cron` is as it was written.
"""

import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Final

_NICKNAMES: Final = frozenset(
    {"@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"}
)
_SETTING: Final = re.compile(
    r"""(?P<name>"[^"=]*"|'[^'=]*'|[^\s="'][^\s=]*)[ \t]*=[ \t]*(?P<value>.*)""", re.DOTALL
)
_TIMES: Final = re.compile(r"(?P<times>@\S*|(?:\S+[ \t]+){4}\S+)(?:[ \t]+(?P<rest>.*))?", re.DOTALL)
_USER: Final = re.compile(r"(?P<user>\S+)(?:[ \t]+(?P<rest>.*))?", re.DOTALL)
_USER_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\$?")
_COMMAND: Final = re.compile(r"((?:[^\\%]|\\.|\\\Z)*)(?:%(.*))?", re.DOTALL)
_BLANKS: Final = " \t"
_SHOWN_CHARS: Final = 40


@dataclass(frozen=True)
class Job:
    """One job of a crontab."""

    line: int
    """Number of its line, from 1."""
    cron: str
    """Five fields with one blank between them, or `@daily` and the like."""
    command: str
    """For the shell; `\\%` resolved."""
    stdin: str | None = None
    """What the command reads, if a `%` said so."""
    user: str | None = None
    """Who it runs as; only in system crontabs."""
    env: Mapping[str, str] = field(default_factory=dict)
    """The settings above it."""
    zone: str | None = None
    """The value of `CRON_TZ` above it."""
    zone_line: int | None = None
    """The line of that `CRON_TZ`."""


@dataclass(frozen=True)
class Remark:
    """Something about one line: why it cannot be taken, or what differs from cron."""

    line: int
    text: str


@dataclass(frozen=True)
class Crontab:
    """What a crontab says, in the order of its lines."""

    jobs: list[Job]
    refused: list[Remark]
    notes: list[Remark]


_REMARKABLE: Final = {
    "TZ": "TZ is for the commands alone, as in cron; CRON_TZ sets the zone of the times",
    "MAILTO": "MAILTO: no mail is sent; what a command writes is in its runs",
}


class _RefusedError(Exception):
    pass


class _Reader:
    """What the lines so far mean for the next one."""

    def __init__(self, system: bool) -> None:
        self.found = Crontab([], [], [])
        self._system = system
        self._env: dict[str, str] = {}
        self._zone: tuple[str, int] | None = None
        self._unread: int | None = None

    def take(self, number: int, line: str) -> None:
        try:
            setting = _setting(line)
        except _RefusedError:
            self._unread = number
            raise
        if setting is not None:
            self._set(number, *setting)
            return
        job = _job(number, line, self._system, dict(self._env), self._zone)
        if self._unread is not None:
            raise _RefusedError(f"line {self._unread}, which may be a setting for it, is not read")
        self.found.jobs.append(job)

    def _set(self, number: int, name: str, value: str) -> None:
        self._env[name] = value
        if name == "CRON_TZ":
            self._zone = (value, number) if value else None
        elif name in _REMARKABLE:
            self.found.notes.append(Remark(number, _REMARKABLE[name]))


def parse(text: str, *, system: bool) -> Crontab:
    """Read a crontab; `system`: its jobs name a user, as in /etc/crontab and /etc/cron.d.

    `text` may hold lone surrogates for bytes that were not UTF-8 (`surrogateescape`); only in a
    comment do they not matter.
    """
    reader = _Reader(system)
    for number, line in _lines(text):
        try:
            reader.take(number, line)
        except _RefusedError as error:
            reader.found.refused.append(Remark(number, str(error)))
    return reader.found


def is_system_path(path: PurePath) -> bool:
    """Say whether cron reads the file at this absolute path as a system crontab."""
    return path == PurePath("/etc/crontab") or path.parent.name == "cron.d"


def user_column(text: str) -> list[str]:
    """What the jobs name as their users, if this is a system crontab."""
    users = []
    for _, line in _lines(text):
        with contextlib.suppress(_RefusedError):
            if _setting(line) is None:
                users.append(_job(0, line, True, {}, None).user or "")
    return users


def _lines(text: str) -> list[tuple[int, str]]:
    """The numbered lines that say something, without the blanks before them."""
    found = []
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        said = line.removesuffix("\r").lstrip(_BLANKS)
        if said and not said.startswith("#"):
            found.append((number, said))
    return found


def _setting(line: str) -> tuple[str, str] | None:
    """Name and value of an environment setting; None for another line."""
    _check_characters(line)
    match = _SETTING.fullmatch(line)
    if match is None:
        return None
    name, value = match["name"], match["value"].rstrip()
    if name[0] in "'\"":
        name = name[1:-1]
    if not name:
        raise _RefusedError("a setting without a name")
    if value[:1] in ("'", '"'):
        inside, quote, after = value[1:].partition(value[0])
        if not quote:
            raise _RefusedError(f"the value of {name} has no closing quote")
        if after:
            raise _RefusedError(f"there is text after the quoted value of {name}")
        value = inside
    return name, value


def _job(
    number: int, line: str, system: bool, env: Mapping[str, str], zone: tuple[str, int] | None
) -> Job:
    match = _TIMES.fullmatch(line.removeprefix("-"))
    if match is None:
        raise _RefusedError("neither a setting nor five time fields and a command")
    cron = " ".join(match["times"].split())
    if cron.startswith("@"):
        _check_nickname(cron)
    user, rest = None, match["rest"] or ""
    if rest.startswith("*"):
        raise _RefusedError("a sixth time field; a crontab has five")
    if system:
        user, rest = _split_user(rest)
    parts = _COMMAND.fullmatch(rest)
    assert parts is not None, "the pattern takes any text"
    command = re.sub(r"\\(.)", _unescape, parts[1], flags=re.DOTALL)
    if not command.strip():
        raise _RefusedError("there is no command")
    return Job(
        line=number,
        cron=cron,
        command=command,
        stdin=None if parts[2] is None else _stdin(parts[2]),
        user=user,
        env=env,
        zone=None if zone is None else zone[0],
        zone_line=None if zone is None else zone[1],
    )


def _check_characters(line: str) -> None:
    if "\0" in line:
        raise _RefusedError("a NUL character")
    if any("\ud800" <= character <= "\udfff" for character in line):
        raise _RefusedError("bytes that are not UTF-8")


def _check_nickname(name: str) -> None:
    if name == "@reboot":
        raise _RefusedError("@reboot is no time: Duly does not see when a machine starts")
    if name not in _NICKNAMES:
        raise _RefusedError(f"{name[:_SHOWN_CHARS]} is not one of {', '.join(sorted(_NICKNAMES))}")


def _split_user(rest: str) -> tuple[str, str]:
    match = _USER.fullmatch(rest)
    if match is None:
        raise _RefusedError("there is no user name and no command")
    if not _USER_NAME.fullmatch(match["user"]):
        shown = match["user"][:_SHOWN_CHARS]
        raise _RefusedError(f"{shown!r} is no user name; a system crontab has one before a command")
    return match["user"], match["rest"] or ""


def _unescape(pair: re.Match[str]) -> str:
    return "%" if pair[1] == "%" else pair[0]


def _stdin(text: str) -> str:
    """What follows the first `%`: newlines for percent signs, and one at the end."""
    data = re.sub(r"\\?%", lambda sign: "%" if len(sign[0]) == 2 else "\n", text)
    return data if not data or data.endswith("\n") else data + "\n"
