"""Files of schedules: what is taken, and how what is wrong is named."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from duly.nodes.declared.reading import Declarations, WrongFileError, read
from duly.nodes.declared.writing import as_toml

NOW_US = 1_800_000_000_000_000
EXAMPLE = Path(__file__).parents[3] / "examples" / "schedules" / "team.toml"


def toml(text: str, owner: str | None = None) -> Declarations:
    return read(text, is_json=False, now_us=NOW_US, owner=owner)


def of_json(value: object, owner: str | None = None) -> Declarations:
    return read(json.dumps(value), is_json=True, now_us=NOW_US, owner=owner)


def one(**fields: Any) -> dict[str, Any]:
    return {"schedules": {"n": {"type": "t", "schedule": {"every": 60}, **fields}}}


def test_the_example() -> None:
    found = toml(EXAMPLE.read_text())
    assert found.owner == "reports"
    assert list(found.tasks) == ["nightly-report", "currency-rates", "cleanup/sessions"]
    nightly, rates, cleanup = found.tasks.values()
    assert (nightly.new.queue, nightly.new.max_retries, cleanup.new.queue) == (
        "reports",
        5,
        "default",
    )
    assert json.loads(nightly.new.payload)["format"] == "pdf"
    assert json.loads(rates.new.schedule or "")["start_at"] == "2026-01-01T00:00:00Z"
    assert json.loads(cleanup.new.tags) == {"team": "web", "applied-by": "reports"}
    assert [task.expected_s for task in found.tasks.values()] == [1200, 40, 3900]
    assert "expected_duration" not in nightly.body


def test_an_encrypted_payload_goes_through_a_file() -> None:
    sealed = {"$encrypted": {"key": "k", "data": "AA=="}}
    found = toml(as_toml(one(payload=sealed)))
    assert json.loads(found.tasks["n"].new.payload) == sealed


def test_numbers_keep_every_digit() -> None:
    found = toml(
        '[schedules.n]\ntype = "t"\nschedule = {every = 60.5}\npayload = [1e400, 0.1000000000000000055]'
    )
    assert found.tasks["n"].body["payload"] == [Decimal("1e400"), Decimal("0.1000000000000000055")]
    assert found.tasks["n"].new.schedule == '{"every":60.5}'


def test_an_owner_of_the_call_comes_first() -> None:
    assert of_json({"owner": "a", **one()}, "b").owner == "b"
    assert json.loads(of_json(one()).tasks["n"].new.tags) == {}


@pytest.mark.parametrize(
    ("content", "wrong"),
    [
        ({"schedule": {}}, ["schedule"]),
        ({"schedules": []}, ["schedules"]),
        ({"owner": 5}, ["owner"]),
        ({"schedules": {"n": 5}}, ["schedules.n"]),
        ({"schedules": {"n": {"type": "t"}}}, ["schedules.n.schedule"]),
        (one(type="a b"), ["schedules.n.type"]),
        (one(schedule={"cron": "0 25 * * *"}), ["schedules.n.schedule.cron"]),
        (one(schedule={"every": 60, "end_at": "2000-01-01T00:00:00Z"}), ["schedules.n.schedule.end_at"]),
        (one(priorty=3), ["schedules.n.priorty"]),
        (one(delay=3, name="m"), ["schedules.n.name", "schedules.n.delay"]),
        (one(timeout=0), ["schedules.n.timeout"]),
        (one(expected_duration="soon"), ["schedules.n.expected_duration"]),
        (one(tags={"applied-by": "x"}), ["schedules.n.tags.applied-by"]),
        (one(payload="x" * 300_000), ["schedules.n.payload"]),
        ({"schedules": {"a b": {"type": "t", "schedule": {"every": 60}}}}, ["schedules.a b.name"]),
        ({"defaults": {"run_at": "x"}, **one()}, ["defaults.run_at"]),
        (
            {"schedules": {"a": {"schedule": {"every": 0}}, "b": {"type": "t", "schedule": {"cron": "x"}}}},
            ["schedules.a.type", "schedules.b.schedule.cron"],
        ),
    ],
)  # fmt: skip
def test_all_that_is_wrong_is_named(content: object, wrong: list[str]) -> None:
    with pytest.raises(WrongFileError) as caught:
        of_json(content)
    assert [error.field for error in caught.value.errors] == wrong


@pytest.mark.parametrize(
    ("text", "is_json", "said"),
    [
        ("[schedules.n]\n[schedules.n]", False, "is not TOML"),
        ('{"schedules": {"n": {}, "n": {}}}', True, "the key 'n' is given twice"),
        ("[" * 100_000, True, "is not JSON"),
        ('[schedules.n]\ntype = "t"\nschedule = {every = 60, start_at = 2026-01-01}', False, "with date and offset"),
        ('[schedules.n]\ntype = "t"\nschedule = {every = 60}\npayload = nan', False, "schedules.n: .*non-finite"),
    ],
)  # fmt: skip
def test_what_is_no_such_file(text: str, is_json: bool, said: str) -> None:
    with pytest.raises(WrongFileError, match=said):
        read(text, is_json=is_json, now_us=NOW_US)
