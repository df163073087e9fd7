"""GET /v1/schedules/preview: the next fire times, remarks, and what is refused."""

from datetime import datetime, timedelta
from urllib.parse import quote, urlencode

import pytest
from node_rig import Answer, RunningNode

from duly.wheel.durations import parse_time

ODD = [
    "TZ=0", "TZ=", "CRON_TZ=UTC", "TZ=Europe/Rome 0 2 * * *", "@every 5m", "R R * * *",
    "H H * * *", "0 0 31 2 *", "0 0 30 2 *", "0 0 31 4,6 *", "9" * 5000, "", " ", "\0", "\ud800",
]  # fmt: skip


async def preview(node: RunningNode, **query: object) -> Answer:
    text = urlencode(query, errors="surrogatepass")
    return await node.call("GET", f"/v1/schedules/preview?{text}")


async def test_fire_times_and_remarks(node: RunningNode) -> None:
    answer = await preview(
        node, cron="30 2 * * *", timezone="Europe/Berlin", after="2026-03-27T12:00:00Z", count=3
    )
    assert answer.status == 200
    assert answer.body["fire_times"] == [
        "2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z",
    ]  # fmt: skip
    (note,) = answer.body["notes"]
    assert "the clock goes forward from 02:00 to 03:00" in note
    assert ":00" in (await preview(node, cron="0 * * * *")).body["notes"][0]


async def test_from_now_on_by_default(node: RunningNode) -> None:
    now = datetime.fromtimestamp(node.context.clock.now_us() / 1e6).astimezone()
    times = (await preview(node, cron="* * * * *")).body["fire_times"]
    assert len(times) == 10
    first = parse_time(times[0])
    assert now < first <= now + timedelta(minutes=10)
    every = (await preview(node, every="PT1H", count=1)).body["fire_times"]
    assert now + timedelta(hours=1) <= parse_time(every[0]) < now + timedelta(hours=2)


async def test_a_period_and_its_start(node: RunningNode) -> None:
    answer = await preview(
        node, every="90.5", start_at="2027-01-01T00:00:00+01:00", after="2026-12-31T23:00:30Z",
        count=2,
    )  # fmt: skip
    assert answer.body == {
        "fire_times": ["2026-12-31T23:01:30.500000Z", "2026-12-31T23:03:01Z"],
        "notes": [],
    }


async def test_c11_zones_are_those_of_the_package(node: RunningNode) -> None:
    for zone, expected in (("America/Vancouver", "16"), ("Africa/Casablanca", "09")):
        answer = await preview(
            node, cron="0 9 * * *", timezone=zone, after="2026-11-29T00:00:00Z", count=1
        )
        assert answer.body["fire_times"] == [f"2026-11-29T{expected}:00:00Z"]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({}, "cron"),
        ({"cron": "* * * * *", "every": "60"}, "cron"),
        ({"cron": "* * * *"}, "cron"),
        ({"cron": "* * * * *", "timezone": "Mars"}, "timezone"),
        ({"cron": "* * * * *", "timezone": "localtime"}, "timezone"),
        ({"cron": "* * * * *", "timezone": "../UTC"}, "timezone"),
        ({"every": "60", "timezone": "UTC"}, "timezone"),
        ({"every": "0"}, "every"),
        ({"every": "nan"}, "every"),
        ({"every": "1e3"}, "every"),
        ({"every": "9" * 400}, "every"),
        ({"every": "P1Y"}, "every"),
        ({"every": "60", "start_at": "tomorrow"}, "start_at"),
        ({"every": "60", "after": "2026-11-29 00:00"}, "after"),
        ({"every": "60", "after": "9999-12-31T23:59:59Z"}, "after"),
        ({"every": "60", "count": "0"}, "count"),
        ({"every": "60", "count": "101"}, "count"),
        ({"every": "60", "count": "many"}, "count"),
        ({"every": "60", "jitter": "5"}, "jitter"),
        ({"cron": "* * * * *", "after": "2999-12-31T23:59:59Z"}, "cron"),
    ],
)
async def test_the_parameter_that_is_wrong_is_named(
    node: RunningNode, query: dict[str, str], field: str
) -> None:
    answer = await preview(node, **query)
    assert answer.status == 422
    assert answer.fields == [field]


async def test_a_parameter_that_comes_twice_is_refused(node: RunningNode) -> None:
    answer = await node.call("GET", "/v1/schedules/preview?cron=0+0+*+*+*&cron=0+1+*+*+*")
    assert (answer.status, answer.fields) == (422, ["cron"])


async def test_c86_odd_expressions_are_a_422(node: RunningNode) -> None:
    for expression in ODD:
        text = quote(expression, errors="surrogatepass")
        answer = await node.call("GET", f"/v1/schedules/preview?cron={text}")
        assert (answer.status, answer.fields) == (422, ["cron"]), expression
    long = await node.call("GET", f"/v1/schedules/preview?cron={'0,' * 300_000}0+*+*+*+*")
    assert 400 <= long.status < 500


async def test_c09_c86_odd_expressions_are_refused_at_submission(node: RunningNode) -> None:
    for expression in [*ODD[:-1], "0,1,2," * 100_000 + "3 * * * *"]:
        task = {"type": "a", "schedule": {"cron": expression}}
        answer = await node.call("POST", "/v1/tasks", task)
        assert (answer.status, answer.fields) == (422, ["schedule.cron"]), expression[:50]
    legal = {"type": "a", "schedule": {"cron": "0 0 30 2 1"}}
    assert (await node.call("POST", "/v1/tasks", legal)).status == 201
    assert len((await node.call("GET", "/v1/tasks")).body["items"]) == 1


async def test_what_is_submitted_is_what_was_previewed(node: RunningNode) -> None:
    for cron, zone in (("30 2 * * *", "Europe/Berlin"), ("0 16 */2 * SAT", "UTC")):
        start_at = "2035-03-20T00:00:00Z"
        schedule = {"cron": cron, "timezone": zone, "start_at": start_at}
        task = await node.call("POST", "/v1/tasks", {"type": "a", "schedule": schedule})
        seen = await preview(node, cron=cron, timezone=zone, start_at=start_at, count=1)
        assert [task.body["next_run_at"]] == seen.body["fire_times"]
