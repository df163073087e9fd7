"""Ids, query strings and If-Match."""

from datetime import UTC, datetime
from uuid import UUID, uuid4

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from duly.nodes.api import queries
from duly.nodes.api.problems import Problem


def request(query: str = "", headers: dict[str, str] | None = None, **path: str) -> web.Request:
    return make_mocked_request("GET", f"/v1/tasks?{query}", headers=headers or {}, match_info=path)


def test_known_parameters_only() -> None:
    queries.known_only(request("a=1&b=2"), ("a", "b", "c"))
    for query in ("c=1", "a=1&a=1"):
        with pytest.raises(Problem):
            queries.known_only(request(query), ("a", "b"))


@pytest.mark.parametrize(("text", "limit"), [("1", 1), ("1000", 1000), ("007", 7)])
def test_limits(text: str, limit: int) -> None:
    assert queries.limit(request(f"limit={text}")) == limit
    assert queries.limit(request()) == queries.LIMIT


@pytest.mark.parametrize("text", ["0", "1001", "", "x", "-1", "1.0", "%D9%A1", "9" * 5000])
def test_wrong_limits(text: str) -> None:
    with pytest.raises(Problem):
        queries.limit(request(f"limit={text}"))


def test_filters() -> None:
    found = queries.task_filter(
        request(
            "status=failed&type=a&queue=b&tag=k:v:w&due_before=2030-01-01T00:00:00Z"
            "&due_after=2029-01-01T01:00:00%2B01:00&periodic=true&paused=false&name=n"
            "&id=00000000-0000-0000-0000-000000000007"
        ).query
    )
    assert found == (
        UUID(int=7), "failed", "a", "b", '{"k":"v:w"}',
        datetime(2030, 1, 1, tzinfo=UTC), datetime(2029, 1, 1, tzinfo=UTC),
        True, False, "n",
    )  # fmt: skip
    assert queries.task_filter({}) == (None,) * 10


@pytest.mark.parametrize(
    "query",
    [
        "status=x",
        "tag=x",
        "tag=:v",
        "tag=a:%00",
        "type=%00",
        "due_before=x",
        "due_after=",
        "id=5",
        "periodic=yes",
        "paused=",
    ],
)
def test_wrong_filters(query: str) -> None:
    with pytest.raises(Problem) as caught:
        queries.task_filter(request(query).query)
    assert [error.field for error in caught.value.errors] == [query.partition("=")[0]]


def test_cursors_lead_back() -> None:
    one, at = uuid4(), datetime(2030, 1, 1, 2, 3, 4, 5, UTC)
    assert queries.task_cursor(request(f"cursor={queries.encode_cursor(one)}")) == one
    cursor = queries.encode_cursor(7, at.isoformat())
    assert queries.run_cursor(request(f"cursor={cursor}")) == (7, at)
    assert queries.task_cursor(request()) is None
    assert queries.run_cursor(request()) is None


@pytest.mark.parametrize("text", ["x", "", "5", "5|x", "5|0001-01-01T00:00:00+14:00", "\0|\0"])
def test_wrong_cursors(text: str) -> None:
    wrong = request(f"cursor={queries.encode_cursor(text)}")
    with pytest.raises(Problem):
        queries.task_cursor(wrong)
    with pytest.raises(Problem):
        queries.run_cursor(wrong)


@pytest.mark.parametrize("text", ["%ff", "x", "====", "a b"])
def test_what_is_not_even_base64(text: str) -> None:
    with pytest.raises(Problem):
        queries.task_cursor(request(f"cursor={text}"))


def test_ids() -> None:
    one = uuid4()
    for text in (str(one), one.hex, str(one).upper()):
        assert queries.task_id(request(id=text)) == one
    assert queries.task_id(request(id="0" * 32)) == UUID(int=0)


@pytest.mark.parametrize(
    "text", ["", "x", "0" * 31, "0" * 33, "0_" * 16, "１" * 32, f"urn:uuid:{UUID(int=1)}", "0x" + "0" * 30]
)  # fmt: skip
def test_wrong_ids(text: str) -> None:
    with pytest.raises(Problem):
        queries.task_id(request(id=text))


@pytest.mark.parametrize(
    ("text", "version"), [('"3"', 3), ("3", 3), ('W/"3"', 3), ("*", None), (' "0" ', 0)]
)
def test_if_match(text: str, version: int | None) -> None:
    assert queries.if_match(request(headers={"If-Match": text})) == version
    assert queries.if_match(request()) is None


@pytest.mark.parametrize("text", ["", "x", '"x"', '"1", "2"', '"-1"', "9" * 19, '"1', '"１"'])
def test_wrong_if_match(text: str) -> None:
    with pytest.raises(Problem):
        queries.if_match(request(headers={"If-Match": text}))
