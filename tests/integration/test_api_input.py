"""Bad input gets the right 4xx with the field named, is never a 500, and nothing is stored."""

import json
from decimal import Decimal

from node_rig import RunningNode

FAR = "2040-01-01T00:00:00Z"
DEEP = 10_000

# body, status, the fields that are named
BAD: list[tuple[bytes, int, list[str]]] = [
    # not JSON
    (b"", 400, []),
    (b"{", 400, []),
    (b"{'type': 'a'}", 400, []),
    (b'{"type":"a",}', 400, []),
    (b'{"type":"a"} x', 400, []),
    (b'{"type":"\xff"}', 400, []),
    (b'\xef\xbb\xbf{"type":"a"}', 400, []),
    ('{"type":"a"}'.encode("utf-16"), 400, []),
    (b'{"type":"a","payload":NaN}', 400, []),
    (b'{"type":"a","payload":Infinity}', 400, []),
    (b'{"type":"a","payload":01}', 400, []),
    (b'{"type":"a","payload":"\\x"}', 400, []),
    (b'{"type":"a","payload":"\n"}', 400, []),
    # not what is expected
    (b"null", 422, ["body"]),
    (b"[]", 422, ["body"]),
    (b'"a"', 422, ["body"]),
    (b"{}", 422, ["type"]),
    (b'{"type":null}', 422, ["type"]),
    (b'{"type":7}', 422, ["type"]),
    (b'{"type":""}', 422, ["type"]),
    (b'{"type":"a b"}', 422, ["type"]),
    (b'{"type":"a\\n"}', 422, ["type"]),
    (b'{"type":"\xc3\xa9"}', 422, ["type"]),
    (b'{"type":"%s"}' % (b"a" * 201), 422, ["type"]),
    (b'{"type":"a","queue":"%s"}' % (b"a" * 101), 422, ["queue"]),
    (b'{"type":"a","queue":"{q}"}', 422, ["queue"]),
    *(
        (b'{"type":"a","queue":"%s"}' % name, 422, ["queue"])
        for name in (b".", b"..", b"./a", b"../a", b"a/.", b"a/..", b"a/./b", b"a/../b", b"a\\n")
    ),
    (b'{"type":"a","id":"x"}', 422, ["id"]),
    (b'{"type":"a","id":7}', 422, ["id"]),
    (b'{"type":"a","nope":1}', 422, ["nope"]),
    (b'{"type":"a","schedule":{"every":1,"cron":"* * * * *"}}', 422, ["schedule"]),
    (b'{"type":"a","status":"failed"}', 422, ["status"]),
    (b'{"type":"a","priority":10}', 422, ["priority"]),
    (b'{"type":"a","priority":-1}', 422, ["priority"]),
    (b'{"type":"a","priority":5.5}', 422, ["priority"]),
    (b'{"type":"a","priority":"5"}', 422, ["priority"]),
    (b'{"type":"a","priority":true}', 422, ["priority"]),
    (b'{"type":"a","priority":1%s}' % (b"0" * 400), 422, ["priority"]),
    (b'{"type":"a","priority":1%s}' % (b"0" * 5000), 422, ["priority"]),
    (b'{"type":"a","max_retries":-1}', 422, ["max_retries"]),
    (b'{"type":"a","max_retries":2147483648}', 422, ["max_retries"]),
    (b'{"type":"a","on_lost":"panic"}', 422, ["on_lost"]),
    (b'{"type":"a","tags":[]}', 422, ["tags"]),
    (b'{"type":"a","tags":{"a":1}}', 422, ["tags[...]"]),
    (b'{"type":"a","tags":{"":"a"}}', 422, ["tags"]),
    (json.dumps({"type": "a", "tags": dict.fromkeys(map(str, range(17)), "")}).encode(), 422,
     ["tags"]),
    (b'{"type":"a","idempotency_key":""}', 422, ["idempotency_key"]),
    (b'{"type":"a","idempotency_key":"%s"}' % (b"k" * 256), 422, ["idempotency_key"]),
    (b'{"type":"a","backoff":{"kind":"random"}}', 422, ["backoff.kind"]),
    (b'{"type":"a","backoff":{"delay":-1}}', 422, ["backoff.delay"]),
    (b'{"type":"a","backoff":{"delay":1e400}}', 422, ["backoff.delay"]),
    (b'{"type":"a","backoff":{"factor":1e308}}', 422, ["backoff.factor"]),
    (b'{"type":"a","backoff":{"jitter":1.1}}', 422, ["backoff.jitter"]),
    (b'{"type":"a","backoff":{"nope":1}}', 422, ["backoff.nope"]),
    # times
    (b'{"type":"a","run_at":"9999-12-31T23:59:59Z"}', 422, ["run_at"]),
    (b'{"type":"a","run_at":"0001-01-01T00:00:00Z"}', 422, ["run_at"]),
    (b'{"type":"a","run_at":"2030-02-30T00:00:00Z"}', 422, ["run_at"]),
    (b'{"type":"a","run_at":"2030-01-01T00:00:00"}', 422, ["run_at"]),
    (b'{"type":"a","run_at":"2030-01-01T25:00:00Z"}', 422, ["run_at"]),
    (b'{"type":"a","run_at":1900000000}', 422, ["run_at"]),
    (b'{"type":"a","run_at":""}', 422, ["run_at"]),
    (b'{"type":"a","delay":"5"}', 422, ["delay"]),
    (b'{"type":"a","delay":"P1M"}', 422, ["delay"]),
    (b'{"type":"a","delay":true}', 422, ["delay"]),
    (b'{"type":"a","delay":1e400}', 422, ["delay"]),
    (b'{"type":"a","delay":1%s}' % (b"0" * 5000), 422, ["delay"]),
    (b'{"type":"a","delay":1,"run_at":"2030-01-01T00:00:00Z"}', 422, ["delay"]),
    (b'{"type":"a","timeout":0}', 422, ["timeout"]),
    (b'{"type":"a","timeout":1e9,"delay":-1}', 422, ["delay", "timeout"]),
    (b'{"type":"a","misfire_grace":-1}', 422, ["misfire_grace"]),
    (b'{"type":"a","concurrency_key":""}', 422, ["concurrency_key"]),
    (b'{"type":"a","concurrency_key":"%s"}' % (b"k" * 256), 422, ["concurrency_key"]),
    (b'{"type":"a","concurrency_key":"\\u0000"}', 422, ["concurrency_key"]),
    (b'{"type":"a","concurrency_key":"k","concurrency_limit":0}', 422, ["concurrency_limit"]),
    (b'{"type":"a","concurrency_key":"k","concurrency_limit":10001}', 422, ["concurrency_limit"]),
    (b'{"type":"a","concurrency_limit":2}', 422, ["concurrency_limit"]),
    (b'{"type":"a","fairness_key":"\\ud800"}', 422, ["fairness_key"]),
    # C40: what PostgreSQL cannot hold
    (b'{"type":"a","payload":{"a":"x\\u0000y"}}', 422, ["payload.a"]),
    (b'{"type":"a","payload":[{"\\u0000":1}]}', 422, ["payload[0]"]),
    (b'{"type":"a","payload":{"a":[1,"\\ud800"]}}', 422, ["payload.a[1]"]),
    (b'{"type":"a","payload":"\\udc00\\ud800"}', 422, ["payload"]),
    (b'{"type":"a","payload":{"\\udfff":1}}', 422, ["payload"]),
    (b'{"type":"a\\u0000"}', 422, ["type"]),
    (b'{"type":"\\ud800"}', 422, ["type"]),
    (b'{"type":"a","tags":{"a":"\\u0000"}}', 422, ["tags.a"]),
    (b'{"type":"a","tags":{"a\\u0000":""}}', 422, ["tags"]),
    (b'{"type":"a","tags":{"a":"\\ud800"}}', 422, ["tags.a"]),
    (b'{"type":"a","idempotency_key":"\\u0000"}', 422, ["idempotency_key"]),
    (b'{"type":"a","idempotency_key":"\\ud800"}', 422, ["idempotency_key"]),
    # C42: numbers that would come back otherwise than they were sent
    (b'{"type":"a","payload":1e1001}', 422, ["payload"]),
    (b'{"type":"a","payload":[1e-1001]}', 422, ["payload[0]"]),
    (b'{"type":"a","payload":{"n":1e99999999999999999999}}', 422, ["payload.n"]),
    (b'{"type":"a","payload":%s}' % (b"9" * 1001), 422, ["payload"]),
    # too deep
    (b'{"type":"a","payload":%s%s}' % (b"[" * 201, b"]" * 201), 422, ["payload"]),
    (b'{"type":"a","payload":%s%s}' % (b"[" * DEEP, b"]" * DEEP), 422, ["payload"]),
    (b'{"type":"a","payload":%s1%s}' % (b'{"a":' * DEEP, b"}" * DEEP), 422, ["payload"]),
    (b'{"nope":%s%s}' % (b"[" * DEEP, b"]" * DEEP), 422, ["nope"]),
    (b"[" * DEEP, 422, ["body"]),
    # too large
    (b'{"type":"a","payload":"%s"}' % (b"x" * 1_000_000), 413, ["payload"]),
    (b'{"type":"a","payload":"%s"}' % (b"x" * 262_143), 413, ["payload"]),
    (b'{"type":"a","payload":"%s"}' % (b"x" * 5_000_000), 413, []),
]  # fmt: skip

# Wrong as a change, too.
BAD_CHANGES: list[tuple[bytes, int, list[str]]] = [
    (b"", 400, []),
    (b"{}", 422, ["body"]),
    (b'{"type":"b"}', 422, ["type"]),
    (b'{"run_at":null}', 422, ["run_at"]),
    (b'{"delay":1e400}', 422, ["delay"]),
    (b'{"priority":"9"}', 422, ["priority"]),
    (b'{"payload":"\\u0000"}', 422, ["payload"]),
    (b'{"payload":{"a":"\\ud800"}}', 422, ["payload.a"]),
    (b'{"tags":{"a":"\\u0000"}}', 422, ["tags.a"]),
    (b'{"payload":%s%s}' % (b"[" * DEEP, b"]" * DEEP), 422, ["payload"]),
    (b'{"payload":"%s"}' % (b"x" * 262_143), 413, ["payload"]),
]


async def test_c40_c42_a_bad_submission_names_its_field_and_stores_nothing(
    node: RunningNode,
) -> None:
    wrong = []
    for body, status, fields in BAD:
        answer = await node.call("POST", "/v1/tasks", body)
        named = answer.fields if isinstance(answer.body, dict) else None
        if (answer.status, named) != (status, fields):
            wrong.append((body[:80], answer))
        assert answer.headers["Content-Type"] == "application/problem+json"
        assert {"type", "title", "status", "detail"} <= answer.body.keys()
    assert wrong == []
    assert await node.count() == await node.count("idempotency_keys") == 0


async def test_c40_c42_a_bad_item_fails_its_batch(node: RunningNode) -> None:
    wrong = []
    for body, status, fields in BAD:
        batch = b'{"tasks":[{"type":"good"},%s]}' % body
        answer = await node.call("POST", "/v1/tasks/batch", batch)
        named = [f"tasks[1].{name}" if name != "body" else "tasks[1]" for name in fields]
        if body[:1] == b"[":  # the nesting is not closed: not JSON as a whole
            status, named = 422, ["tasks[1]"] if body == b"[]" else answer.fields
        if len(body) > 4_000_000:
            named = ["tasks[1].payload"]
        if (answer.status, answer.fields) != (status, named):
            wrong.append((body[:80], answer))
    assert wrong == []
    assert await node.count() == 0


async def test_a_bad_change_names_its_field_and_changes_nothing(node: RunningNode) -> None:
    task = (await node.call("POST", "/v1/tasks", {"type": "a", "run_at": FAR})).body
    path = f"/v1/tasks/{task['id']}"
    wrong = []
    for body, status, fields in BAD_CHANGES:
        answer = await node.call("PATCH", path, body)
        if (answer.status, answer.fields) != (status, fields):
            wrong.append((body[:80], answer))
    assert wrong == []
    assert (await node.call("GET", path)).body == task


async def test_c42_numbers_come_back_as_they_were_sent(node: RunningNode) -> None:
    payload = (
        b'{"id": 73786976294838206464, "n": 18446744073709551616, "x": 9007199254740993, '
        b'"f": 1e400, "d": 0.1000000000000000055, "long": %s, "small": 1e-400}' % (b"7" * 1000)
    )
    body = b'{"type":"a","run_at":"2040-01-01T00:00:00Z","payload":%s}' % payload
    answer = await node.call("POST", "/v1/tasks", body)
    assert answer.status == 201
    async with node.http.get(answer.headers["Location"]) as found:
        text = await found.text()
    kept = json.loads(text, parse_float=Decimal, parse_int=Decimal)["payload"]
    assert kept == json.loads(payload, parse_float=Decimal, parse_int=Decimal)


async def test_c40_what_only_looks_like_nul_is_kept(node: RunningNode) -> None:
    texts = ["\\u0000", "\U0001f600", "\u2028", "\x01", "\ufffe", "e\u0301"]
    for text in texts:
        task = await node.client.submit("a", {text: [text]}, run_at=FAR)
        assert (await node.client.get(task.id)).payload == {text: [text]}


async def test_the_payload_may_be_as_large_as_the_limit(node: RunningNode) -> None:
    task = await node.client.submit("a", "x" * 262_142, run_at=FAR)
    assert len((await node.client.get(task.id)).payload) == 262_142


async def test_wrong_paths_methods_and_kinds_of_content(node: RunningNode) -> None:
    body = b'{"type":"a"}'
    one = "/v1/tasks/01890000-0000-7000-8000-000000000000"
    gone = [
        ("GET", "/v1/nope", 404), ("POST", "/v1/tasks/", 404), ("GET", one, 404),
        ("GET", one + "/runs", 404), ("POST", one + "/cancel", 404), ("POST", one + "/retry", 404),
        ("PUT", "/v1/tasks", 405), ("DELETE", one, 405), ("GET", one + "/cancel", 405),
        ("POST", "/healthz", 405),
    ]  # fmt: skip
    for method, path, status in gone:
        answer = await node.call(method, path)
        assert answer.status == answer.body["status"] == status, path
        assert ("Allow" in answer.headers) == (status == 405)
    for wrong in ("x", "%00", "%ff", "0" * 32 + "0", "-" * 36, "0_" * 16):
        for method, path in (
            ("GET", f"/v1/tasks/{wrong}"), ("POST", f"/v1/tasks/{wrong}/cancel"),
            ("POST", f"/v1/tasks/{wrong}/retry"), ("GET", f"/v1/tasks/{wrong}/runs"),
        ):  # fmt: skip
            answer = await node.call(method, path)
            assert (answer.status, answer.fields) == (422, ["id"]), path
    for kind in ("text/plain", "application/x-www-form-urlencoded", "json", "", "application/xml"):
        answer = await node.call("POST", "/v1/tasks", body, {"Content-Type": kind})
        assert answer.status == 415, kind
    async with node.http.post("/v1/tasks", data=body, skip_auto_headers=["Content-Type"]) as bare:
        assert bare.status == 415
    good = await node.call(
        "POST", "/v1/tasks", body, {"Content-Type": "Application/JSON; charset=utf-8"}
    )
    assert good.status == 201
    assert await node.count() == 1
