"""Crontab text: what crontab(5) says of it, on real files and on made ones."""

from pathlib import Path, PurePath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.nodes.crontab import Job, is_system_path, parse, user_column

FILES = Path(__file__).parent / "crontabs"
SYSTEM = ["crontab", "amavisd-new", "anacron", "atop", "cacti", "certbot", "e2scrub_all", "logcheck",
          "mdadm", "munin", "php", "sysstat"]  # fmt: skip


def text_of(name: str) -> str:
    return (FILES / name).read_text()


def one(line: str, *, system: bool = False) -> Job:
    found = parse(line, system=system)
    assert found.refused == []
    (job,) = found.jobs
    return job


def refusal(line: str, *, system: bool = False) -> str:
    found = parse(line, system=system)
    assert found.jobs == []
    (refused,) = found.refused
    assert refused.line == 1
    return refused.text


# Real files


@pytest.mark.parametrize("name", SYSTEM)
def test_each_job_of_debians_files_is_taken_as_it_stands_there(name: str) -> None:
    found = parse(text_of(name), system=True)
    lines = text_of(name).split("\n")
    wanted = [
        number
        for number, line in enumerate(lines, 1)
        if line[:1] in set("0123456789*") and "%" not in line
    ]
    for job in found.jobs:
        if "%" in lines[job.line - 1]:
            continue
        *times, user, command = lines[job.line - 1].split(None, 6)
        assert (job.cron, job.user, job.command) == (" ".join(times[:5]), user, command)
        assert job.stdin is None
    assert [job.line for job in found.jobs if job.line in wanted] == wanted


def test_of_debians_files_only_a_reboot_cannot_be_taken() -> None:
    refused = {name: parse(text_of(name), system=True).refused for name in SYSTEM}
    assert {name: [one.line for one in lines] for name, lines in refused.items() if lines} == {
        "logcheck": [6]
    }


def test_settings_of_a_file_go_with_its_jobs() -> None:
    assert parse(text_of("sysstat"), system=True).jobs[0].env == {
        "PATH": "/usr/lib/sysstat:/usr/sbin:/usr/sbin:/usr/bin:/sbin:/bin"
    }


def test_an_escaped_percent_sign_in_a_real_file() -> None:
    (job,) = parse(text_of("mdadm"), system=True).jobs
    assert "[ $(date +%d) -le 7 ]" in job.command
    assert job.stdin is None


def test_the_example_of_the_manual_page() -> None:
    found = parse(text_of("manual"), system=False)
    assert [(job.line, job.cron) for job in found.jobs] == [
        (8, "5 0 * * *"), (10, "15 14 1 * *"), (12, "0 22 * * 1-5"), (13, "23 0-23/2 * * *"),
        (14, "5 4 * * sun"), (16, "33 22 * * *"),
    ]  # fmt: skip
    assert found.refused == []
    assert {(job.zone, job.zone_line) for job in found.jobs} == {("Japan", 6)}
    annoy, wax = found.jobs[2], found.jobs[5]
    assert annoy.command == 'mail -s "It\'s 10pm" joe'
    assert annoy.stdin == "Joe,\n\nWhere are your kids?\n"
    assert wax.command == "expr $(date +%s) / 60 / 60 / 24 % 9 > /dev/null || echo Wax the floor."
    assert wax.env == {"SHELL": "/bin/sh", "MAILTO": "paul", "CRON_TZ": "Japan"}


# Lines


def test_blank_lines_and_comments_say_nothing() -> None:
    found = parse("\n  \n\t# a comment\n#* * * * * x\n\r\n", system=False)
    assert (found.jobs, found.refused, found.notes) == ([], [], [])


def test_a_comment_cannot_follow_a_command() -> None:
    assert one("* * * * * x # y").command == "x # y"


def test_blanks_between_fields_and_before_them_do_not_matter() -> None:
    assert one("  \t0   1\t2 \t 3   4 \t x  y ").cron == "0 1 2 3 4"
    assert one("  \t0   1\t2 \t 3   4 \t x  y ").command == "x  y "


@pytest.mark.parametrize(
    "name", ["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"]
)
def test_a_name_stands_for_five_fields(name: str) -> None:
    assert one(f"{name}\tcd /x && y").cron == name
    assert one(f"{name} root  x y", system=True).command == "x y"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("@reboot x", "@reboot is no time"),
        ("@daily", "there is no command"),
        ("@Daily x", "@Daily is not one of @annually"),
        ("@every 5m x", "@every is not one of"),
        ("* * * * *", "there is no command"),
        ("* * * * x", "there is no command"),
        ("* * * *", "neither a setting nor five time fields"),
        ("* * * * * * x", "a sixth time field"),
        ("* * * * * %in", "there is no command"),
        ("hello", "neither a setting nor five time fields"),
        ("= x", "neither a setting nor five time fields"),
        ("'' = x", "a setting without a name"),
        ("X = 'y", "no closing quote"),
        ("X = 'y' z", "text after the quoted value"),
        ("* * * * * x\0y", "a NUL character"),
        ("* * * * * \udcff", "not UTF-8"),
    ],
)
def test_what_cannot_be_taken_is_said(line: str, says: str) -> None:
    assert says in refusal(line)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("* * * * * root", "there is no command"),
        ("* * * * *", "no user name and no command"),
        ("* * * * * /bin/x y", "'/bin/x' is no user name"),
        ("* * * * * * root x", "a sixth time field"),
    ],
)
def test_a_system_crontab_needs_a_user_name(line: str, says: str) -> None:
    assert says in refusal(line, system=True)


@pytest.mark.parametrize("user", ["root", "www-data", "Debian-exim", "_apt", "host$", "1000"])
def test_user_names(user: str) -> None:
    assert one(f"* * * * * {user} x", system=True).user == user


def test_bytes_that_are_not_text_may_stand_in_a_comment() -> None:
    assert parse("# \udce9\n* * * * * x\n", system=False).refused == []


def test_a_mark_at_the_begin_of_the_file_and_windows_line_ends_are_no_text() -> None:
    job = one("\ufeff* * * * * x y\r\n")
    assert (job.cron, job.command) == ("* * * * *", "x y")


def test_the_last_line_needs_no_end() -> None:
    assert one("* * * * * x").command == "x"


def test_a_job_that_cron_does_not_log_is_a_job() -> None:
    assert one("-*/15 * * * * root x", system=True).cron == "*/15 * * * *"


# Settings


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ("X=y", "X", "y"),
        ("X = y z  ", "X", "y z"),
        ("X=", "X", ""),
        ('X=""', "X", ""),
        ("X=' a '", "X", " a "),
        ('"X Y"="a\'b"', "X Y", "a'b"),
        ("X=a=b", "X", "a=b"),
        ("X=a'b'", "X", "a'b'"),
        ("X=$HOME/bin # c", "X", "$HOME/bin # c"),
        ("\tX\t=\ty", "X", "y"),
    ],
)
def test_a_setting_has_a_name_and_a_value(line: str, name: str, value: str) -> None:
    assert one(f"{line}\n* * * * * x").env == {name: value}


def test_a_setting_is_for_the_jobs_below_it() -> None:
    jobs = parse("* * * * * a\nX=1\n* * * * * b\nX=2\nY=3\n* * * * * c\n", system=False).jobs
    assert [job.env for job in jobs] == [{}, {"X": "1"}, {"X": "2", "Y": "3"}]


def test_a_job_may_hold_an_equal_sign() -> None:
    assert one("* * * * * X=1 y").command == "X=1 y"
    assert one("@daily X=1 y").command == "X=1 y"


def test_a_setting_that_cannot_be_read_spoils_what_is_below_it() -> None:
    found = parse("* * * * * a\nX='\n* * * * * b\n", system=False)
    assert [job.command for job in found.jobs] == ["a"]
    assert [one.line for one in found.refused] == [2, 3]
    assert "line 2" in found.refused[1].text


def test_the_zone_of_the_times() -> None:
    text = "* * * * * a\nCRON_TZ=Asia/Tokyo\n* * * * * b\nCRON_TZ=\n* * * * * c\n"
    jobs = parse(text, system=False).jobs
    assert [(job.zone, job.zone_line) for job in jobs] == [
        (None, None),
        ("Asia/Tokyo", 2),
        (None, None),
    ]


def test_tz_changes_no_times_and_that_is_said() -> None:
    found = parse("TZ=Asia/Tokyo\nMAILTO=x\n* * * * * a\n", system=False)
    assert found.jobs[0].zone is None
    assert found.jobs[0].env == {"TZ": "Asia/Tokyo", "MAILTO": "x"}
    assert [one.line for one in found.notes] == [1, 2]
    assert "CRON_TZ" in found.notes[0].text


# Percent signs, against the rule written as crond has it: character by character


def split_as_crond(text: str) -> tuple[str, str | None]:
    """Command and input, by the two loops of cron's do_command."""
    command, at, escaped = "", 0, False
    while at < len(text):
        character = text[at]
        at += 1
        if escaped:
            command = command[:-1] + "%" if character == "%" else command + character
            escaped = False
        elif character == "%":
            return command, fed_as_crond(text[at:])
        else:
            command += character
            escaped = character == "\\"
    return command, None


def fed_as_crond(text: str) -> str:
    fed, escaped = "", False
    for character in text:
        if escaped and character != "%":
            fed += "\\"
        said = "\n" if character == "%" and not escaped else character
        escaped = said == "\\"
        if not escaped:
            fed += said
    fed += "\\" if escaped else ""
    return fed if not fed or fed.endswith("\n") else fed + "\n"


@given(st.text(alphabet="a \\%\n".replace("\n", "'"), max_size=12))
def test_percent_signs_are_crons(rest: str) -> None:
    line = f"* * * * * x{rest}"
    command, stdin = split_as_crond(f"x{rest}")
    job = one(line)
    assert (job.command, job.stdin) == (command, stdin)


# Any text


@given(
    st.text(alphabet=st.sampled_from("*0@d \t\n\r=\"'%\\#-r\udcff\0é"), max_size=60), st.booleans()
)
def test_each_line_is_a_job_a_setting_a_comment_or_refused(text: str, system: bool) -> None:
    found = parse(text, system=system)
    named = [job.line for job in found.jobs] + [one.line for one in found.refused]
    assert len(set(named)) == len(named)
    assert all(1 <= line <= text.count("\n") + 1 for line in named)
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        said = line.removesuffix("\r").lstrip(" \t")
        if not said or said.startswith("#"):
            assert number not in named
        elif number not in named:
            assert "=" in said


FIELD = st.sampled_from(["*", "*/5", "0", "1-5", "1,2", "mon"])
WORD = st.text(alphabet="abc/$=\"'&|#\\", min_size=1, max_size=8).filter(
    lambda word: not word.startswith("*") and not word.endswith("\\")
)


@given(
    st.lists(
        st.tuples(st.lists(FIELD, min_size=5, max_size=5), st.lists(WORD, min_size=1, max_size=4)),
        max_size=8,
    )
)
def test_what_was_written_is_read(jobs: list[tuple[list[str], list[str]]]) -> None:
    text = "# head\n\n" + "".join(f" {'  '.join(f)}\t{' '.join(w)}\n" for f, w in jobs)
    found = parse(text, system=False)
    assert [(job.line, job.cron, job.command) for job in found.jobs] == [
        (number, " ".join(fields), " ".join(words))
        for number, (fields, words) in enumerate(jobs, 3)
    ]


def test_a_long_file_takes_no_time() -> None:
    text = "* " * 200_000 + "\n" + "x\\%" * 200_000 + " y\n" + "* * * * * " + "\\%" * 200_000
    assert [len(one.text) < 200 for one in parse(text, system=True).refused] == [True] * 3


# Which kind of file it is


@pytest.mark.parametrize(
    ("path", "system"),
    [("/etc/crontab", True), ("/etc/cron.d/munin", True), ("/x/cron.d/y", True),
     ("/home/a/crontab", False), ("/var/spool/cron/crontabs/root", False)],
)  # fmt: skip
def test_some_files_are_system_crontabs_by_their_place(path: str, system: bool) -> None:
    assert is_system_path(PurePath(path)) is system


def test_what_a_user_column_would_hold() -> None:
    assert user_column(text_of("munin")) == ["munin", "munin", "munin", "www-data"]
    assert user_column("0 22 * * * mail -s x\nX=1\n@reboot y z\n") == ["mail"]
