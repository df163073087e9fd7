"""submit, get, list, cancel, retry and runs against an API that follows the contract."""

import io
import json
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web
from fake_api import FakeApi, problem, refuse

Duly = Callable[..., Awaitable[Any]]
NOBODY = "http://127.0.0.1:1"


async def test_submit_sends_what_the_options_say(api: FakeApi, duly: Duly) -> None:
    answer = await duly(
        "submit", "email.send", '{"to": "a@example.org"}', "--in", "PT5M", "--queue", "mail",
        "--priority", 9, "--max-retries", 0, "--timeout", "2.5", "--misfire-grace", 60,
        "--on-lost", "fail", "--key", "k1", "--tag", "a=1", "--tag", "b=x=y", "--url", api.url,
        "--concurrency-key", "c", "--concurrency-limit", 3, "--fairness-key", "f",
        "--region", "eu",
    )  # fmt: skip
    assert answer.code == 0
    method, path, body, _ = api.requests[0]
    assert (method, path) == ("POST", "/v1/tasks")
    assert body == {
        "type": "email.send", "payload": {"to": "a@example.org"}, "delay": "PT5M", "queue": "mail",
        "priority": 9, "max_retries": 0, "timeout": 2.5, "misfire_grace": 60.0, "on_lost": "fail",
        "idempotency_key": "k1", "tags": {"a": "1", "b": "x=y"},
        "concurrency_key": "c", "concurrency_limit": 3, "fairness_key": "f",
        "region": "eu",
    }  # fmt: skip


async def test_submit_shows_the_task(api: FakeApi, duly: Duly) -> None:
    answer = await duly("submit", "t", "[1]", "--url", api.url)
    shown = dict(line.split(maxsplit=1) for line in answer.out.splitlines())
    assert shown["id"] in api.tasks
    assert shown["status"] == "pending"
    assert shown["payload"] == "[1]"


async def test_submit_quiet_prints_the_id_alone(api: FakeApi, duly: Duly) -> None:
    answer = await duly("submit", "-q", "t", "--url", api.url)
    assert answer.out.strip() in api.tasks


async def test_submit_at_a_time(api: FakeApi, duly: Duly) -> None:
    await duly("submit", "t", "--at", "2026-12-24T18:00:00+01:00", "--url", api.url)
    assert api.requests[0][2]["run_at"] == "2026-12-24T18:00:00+01:00"
    assert "delay" not in api.requests[0][2]


async def test_a_payload_from_standard_input(
    api: FakeApi, duly: Duly, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO('{"n": 1}\n'))
    await duly("submit", "t", "-", "--url", api.url)
    assert api.requests[0][2]["payload"] == {"n": 1}


async def test_numbers_keep_every_digit(api: FakeApi, duly: Duly) -> None:
    number = "0.10000000000000000555"
    api.raw_payload = number
    answer = await duly("submit", "t", number, "--json", "--url", api.url)
    assert f'"payload":{number}' in answer.out


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["{bad"], "the payload is not JSON"),
        (["--tag", "no-equals"], "write NAME=VALUE"),
        (["--in", "nan"], "delay is a finite number"),
    ],
)
async def test_what_is_wrong_is_said_before_anything_is_sent(
    api: FakeApi, duly: Duly, argv: list[str], says: str
) -> None:
    answer = await duly("submit", "t", *argv, "--url", api.url)
    assert answer.code == 2
    assert answer.err.startswith("duly: ")
    assert says in answer.err
    assert api.requests == []


async def test_each_wrong_field_has_a_line(api: FakeApi, duly: Duly) -> None:
    async def invalid(_: web.Request) -> web.StreamResponse:
        errors = [{"field": "type", "message": "no"}, {"field": "tags.a", "message": "long"}]
        return problem(422, "type: no; tags.a: long", errors=errors)

    api.before.append(invalid)
    answer = await duly("submit", "t", "--url", api.url)
    assert answer.code == 1
    assert answer.err == "duly: type: no\n      tags.a: long\n"


async def test_schedules(api: FakeApi, duly: Duly) -> None:
    await duly("submit", "t", "--every", "PT1H", "--overrun", "queue", "--url", api.url)
    assert api.requests[-1][2]["schedule"] == {"every": "PT1H"}
    assert api.requests[-1][2]["overrun"] == "queue"
    cron = ("--cron", "0 3 * * *", "--tz", "Europe/Berlin")
    answer = await duly("submit", "t", *cron, "--url", api.url)
    assert api.requests[-1][2]["schedule"] == {"cron": "0 3 * * *", "timezone": "Europe/Berlin"}
    task_id = next(iter(api.tasks))
    for name in ("pause", "resume", "run-now"):
        answer = await duly(name, task_id, "--url", api.url)
        assert answer.code == 0
        assert api.requests[-1][1] == f"/v1/tasks/{task_id}/{name}"
        assert ("paused       true" in answer.out) == (name == "pause")
    assert 'schedule     {"every":"PT1H"}' in answer.out
    assert (await duly("submit", "t", "--tz", "Europe/Berlin", "--url", api.url)).code == 2


async def test_get_shows_a_task_and_json_shows_all_of_it(api: FakeApi, duly: Duly) -> None:
    error = {"type": "KeyError", "message": "x"}
    task = api.add({"type": "t", "status": "failed", "retry_count": 2, "error": error})
    plain = await duly("get", task["id"], "--url", api.url)
    assert plain.code == 0
    assert "retry_count  2" in plain.out
    assert 'error        {"type":"KeyError","message":"x"}' in plain.out
    whole = json.loads((await duly("get", task["id"], "--json", "--url", api.url)).out)
    assert {"id", "version", "tags", "created_at", "result"} <= whole.keys()


async def test_a_task_that_is_not_there(api: FakeApi, duly: Duly) -> None:
    answer = await duly("get", uuid.uuid4(), "--url", api.url)
    assert (answer.code, answer.err) == (1, "duly: no such task\n")


async def test_list_shows_a_line_a_task_up_to_the_limit(api: FakeApi, duly: Duly) -> None:
    ids = [api.add({"type": f"t{n}"})["id"] for n in range(5)]
    answer = await duly("list", "--limit", 3, "--url", api.url)
    assert [line.split()[0] for line in answer.out.splitlines()] == ids[:1:-1]


async def test_list_passes_its_filters_on(api: FakeApi, duly: Duly) -> None:
    await duly(
        "list", "--status", "failed", "--type", "t", "--queue", "q", "--tag", "a:1",
        "--due-before", "2026-01-01T00:00:00Z", "--due-after", "2025-01-01T00:00:00Z",
        "--periodic", "--no-paused", "--url", api.url,
    )  # fmt: skip
    query = dict(part.split("=") for part in api.requests[0][1].partition("?")[2].split("&"))
    assert query.keys() == {
        "status", "type", "queue", "tag", "due_before", "due_after", "periodic", "paused", "limit",
    }  # fmt: skip
    assert (query["periodic"], query["paused"]) == ("true", "false")


async def test_list_as_json_is_an_object_a_line(api: FakeApi, duly: Duly) -> None:
    for n in range(2):
        api.add({"type": f"t{n}"})
    answer = await duly("list", "--json", "--url", api.url)
    assert [json.loads(line)["type"] for line in answer.out.splitlines()] == ["t1", "t0"]


async def test_cancel_and_retry(api: FakeApi, duly: Duly) -> None:
    task = api.add({"type": "t"})
    cancelled = await duly("cancel", task["id"], "--url", api.url)
    assert "status       cancelled" in cancelled.out
    again = await duly("cancel", task["id"], "--url", api.url)
    assert (again.code, again.err) == (1, "duly: the task has finished\n")
    retried = await duly("retry", task["id"], "--url", api.url)
    assert "status       pending" in retried.out


async def test_runs_shows_all_of_them_newest_first(api: FakeApi, duly: Duly) -> None:
    task = api.add({"type": "t"})
    lines = (await duly("runs", task["id"], "--url", api.url)).out.splitlines()
    assert len(lines) == 250
    assert lines[0].startswith("attempt 250  token 250  failed")
    assert lines[0].endswith('{"n":250}')
    whole = (await duly("runs", task["id"], "--json", "--url", api.url)).out.splitlines()
    assert json.loads(whole[-1])["attempt"] == 1


async def test_ledger_shows_a_task_and_what_became_of_it(api: FakeApi, duly: Duly) -> None:
    task = api.add({"type": "t"})
    lines = (await duly("ledger", task["id"], "--url", api.url)).out.splitlines()
    assert lines[:4] == [
        "due 2026-11-29T02:29:00.000+00:00  open",
        '    attempt 1  token 7  lost       -  -  "lost"',
        "    rejected: stale attempt  token 7  completed  2026-11-29T12:00:05.000+00:00  w  3 times",
        "due 2026-11-29T02:28:00.000+00:00  skipped  ended, and all up to 2026-11-29T12:00:00.000+00:00",
    ]
    assert len(lines) == 22
    whole = await duly("ledger", task["id"], "--json", "--limit", "1", "--url", api.url)
    assert json.loads(whole.out)["rejected"][0]["times"] == 3


async def test_ledger_shows_all_by_filter(api: FakeApi, duly: Duly) -> None:
    asked = ("ledger", "--verdict", "rejected", "--since", "2026-11-29T00:00:00Z", "--limit", "3")
    lines = (await duly(*asked, "--url", api.url)).out.splitlines()
    assert len(lines) == 3
    assert lines[0] == (
        "2026-11-29T12:00:01.000+00:00  rejected   00000000-0000-0000-0000-000000000000  "
        'due 2026-11-29T12:00:00.000+00:00  q  t  failed by w  {"n":0}'
    )
    assert "verdict=rejected&since=2026-11-29T00:00:00" in api.requests[-1][1]
    (line, *_) = (await duly(*asked, "--json", "--url", api.url)).out.splitlines()
    assert json.loads(line)["outcome"] == "failed"
    wrong = await duly("ledger", str(uuid.uuid4()), "--queue", "q", "--url", api.url)
    assert (wrong.code, wrong.err) == (2, "duly: --queue goes without an id\n")


async def test_the_token_is_sent(api: FakeApi, duly: Duly, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DULY_TOKEN", "from-environment")
    monkeypatch.setenv("DULY_URL", api.url)
    await duly("list")
    await duly("list", "--token", "given")
    sent = [headers["Authorization"] for *_, headers in api.requests]
    assert sent == ["Bearer from-environment", "Bearer given"]


async def test_a_refusal_is_shown(api: FakeApi, duly: Duly) -> None:
    api.before.append(refuse(401))
    answer = await duly("list", "--url", api.url)
    assert (answer.code, answer.err) == (1, "duly: not now\n")


async def test_a_node_that_is_not_there(duly: Duly) -> None:
    answer = await duly("list", "--url", NOBODY)
    assert answer.code == 1
    assert answer.err.startswith(f"duly: {NOBODY} does not answer: ")
    assert answer.err.count("\n") == 1


async def test_a_url_of_another_kind(duly: Duly) -> None:
    answer = await duly("list", "--url", "ftp://x")
    assert answer.code == 2
    assert "http://" in answer.err
