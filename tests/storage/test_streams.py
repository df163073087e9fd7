"""The conveyor's scripts on a real server: publishing, settling, fencing off, finding."""

import asyncio
from typing import Any
from uuid import UUID, uuid4

import pytest
from redis.asyncio import Redis
from redis.exceptions import ResponseError
from store_rig import NOW

from duly.storage import keys
from duly.storage.claims import Claimed
from duly.storage.redis import connect
from duly.storage.stream_facts import Held, Place
from duly.storage.streams import Streams

Q = "default"


@pytest.fixture
async def client(redis_url: str) -> Any:
    one: Redis = connect(redis_url, name="test")
    yield one
    await one.aclose()


def task(token: int = 1, task_id: UUID | None = None, **changes: Any) -> Claimed:
    plain = Claimed(task_id or uuid4(), token, "t", Q, NOW, 0, 300.0, "retry", '{"n": 1.50}')
    return plain._replace(**changes)


async def run(client: Any, *words: Any) -> Any:
    return await client.execute_command(*words)


async def read(client: Any, worker: str, count: int = 10) -> list[tuple[bytes, list[bytes]]]:
    """What a worker gets."""
    answer = await run(
        client, "XREADGROUP", "GROUP", keys.WORKERS_GROUP, worker, "COUNT", count,
        "STREAMS", keys.tasks(Q), ">",
    )  # fmt: skip
    return answer[0][1] if answer else []


async def report(client: Any, **fields: Any) -> bytes:
    words = [word for item in fields.items() for word in item]
    entry_id: bytes = await run(client, "XADD", keys.reports(Q), "*", *words)
    return entry_id


async def nothing_left(client: Any) -> bool:
    sizes = [
        await run(client, "XLEN", keys.tasks(Q)), await run(client, "XLEN", keys.reports(Q)),
        await run(client, "HLEN", keys.inflight(Q)), await run(client, "HLEN", keys.entries(Q)),
    ]  # fmt: skip
    return sizes == [0, 0, 0, 0]


async def test_an_entry_has_the_fields_of_the_protocol(streams: Streams, client: Any) -> None:
    one = task(7, retry_count=2, timeout=1.5, on_lost="fail")
    assert (await streams.publish(Q, [one])).undelivered == 1
    ((_, words),) = await read(client, "w")
    said = dict(zip(words[::2], words[1::2], strict=True))
    assert said == {
        b"id": str(one.id).encode(), b"token": b"7", b"type": b"t", b"payload": b'{"n": 1.50}',
        b"due": f"{NOW.timestamp() * 1000:.3f}".encode(), b"attempt": b"3", b"timeout": b"1.5",
        b"queue": Q.encode(), b"confirm": b"1",
    }  # fmt: skip


async def test_publishing_twice_adds_once(streams: Streams, client: Any) -> None:
    some = [task() for _ in range(5)]
    await streams.publish(Q, some)
    assert (await streams.publish(Q, some)).entries == 5
    await read(client, "w", 2)  # also what a worker has fetched
    backlog = await streams.publish(Q, some)
    assert (backlog.entries, backlog.delivered, backlog.undelivered) == (5, 2, 3)


async def test_publishing_never_lowers_a_token(streams: Streams, client: Any) -> None:
    newer = task(10)
    await streams.publish(Q, [newer])
    # 9 comes after 10 as text: numbers are compared.
    assert (await streams.publish(Q, [task(9, newer.id)])).entries == 1
    assert await run(client, "HGET", keys.inflight(Q), str(newer.id)) == b"10"
    assert (await streams.publish(Q, [task(11, newer.id)])).entries == 2
    assert await run(client, "HGET", keys.inflight(Q), str(newer.id)) == b"11"


async def test_an_entry_that_got_lost_is_added_again(streams: Streams, client: Any) -> None:
    one = task()
    await streams.publish(Q, [one])
    await run(client, "DEL", keys.tasks(Q))
    backlog = await streams.publish(Q, [one])
    assert backlog.entries == 1
    assert len(await read(client, "w")) == 1  # its group is there again, from the beginning


async def test_who_has_claimed_adds_nothing_that_another_node_published_and_a_worker_reported(
    streams: Streams, client: Any
) -> None:
    one, other = task(3), task(4)
    await streams.publish(Q, [one])
    ((entry, _),) = await read(client, "w")
    await run(client, "XACK", keys.tasks(Q), keys.WORKERS_GROUP, entry)
    await run(client, "XDEL", keys.tasks(Q), entry)
    await report(client, id=str(one.id), token=3, outcome="completed")
    assert (await streams.publish(Q, [one, other], first=True)).entries == 1
    newer = one._replace(token=5)
    assert (await streams.publish(Q, [newer], first=True)).entries == 2
    assert await run(client, "HGET", keys.inflight(Q), str(one.id)) == b"5"


async def test_settling_forgets_the_report_and_the_task(streams: Streams, client: Any) -> None:
    one = task(3)
    await streams.publish(Q, [one])
    ((entry, _),) = await read(client, "w")
    await run(client, "XACK", keys.tasks(Q), keys.WORKERS_GROUP, entry)
    await run(client, "XDEL", keys.tasks(Q), entry)
    await report(client, id=str(one.id), token=3, outcome="completed")
    (seen,) = await streams.reports.read([Q], block_ms=10)
    assert (seen.queue, seen.fields[b"outcome"]) == (Q, b"completed")
    items = [(seen.entry_id, seen.fields[b"id"], seen.fields[b"token"])]
    await streams.reports.settle(Q, items)
    assert await nothing_left(client)
    await streams.reports.settle(Q, items)  # once more does no harm


async def test_a_stale_report_leaves_the_newer_token_alone(streams: Streams, client: Any) -> None:
    one = task(3)
    await streams.publish(Q, [one])
    entry = await report(client, id=str(one.id), token=2, outcome="completed")
    await streams.reports.settle(Q, [(entry, str(one.id), "2")])
    assert await run(client, "XLEN", keys.reports(Q)) == 0
    (place,) = await streams.locate(Q, [(one.id, 3)])
    assert place.entry_id


async def test_settling_a_task_looks_up_its_entry(streams: Streams, client: Any) -> None:
    one, other = task(), task()
    await streams.publish(Q, [one, other])
    await streams.settle(Q, [(b"", str(one.id), "1"), (b"", str(other.id), "99")])
    assert await run(client, "XLEN", keys.tasks(Q)) == 1
    assert (await streams.inflight_page(Q, 0))[1] == [(str(other.id), "1")]


async def test_superseding_takes_an_entry_out_that_nobody_has(
    streams: Streams, client: Any
) -> None:
    one = task(4)
    await streams.publish(Q, [one])
    assert await streams.supersede(Q, one.id, 5) is None
    assert await read(client, "w") == []
    assert await run(client, "HGET", keys.inflight(Q), str(one.id)) == b"5"
    await streams.publish(Q, [one])  # a publisher that was late
    assert await read(client, "w") == []


async def test_superseding_names_the_worker_that_has_it(streams: Streams, client: Any) -> None:
    one = task(4)
    await streams.publish(Q, [one])
    await read(client, "w9")
    assert await streams.supersede(Q, one.id, 5) == "w9"
    assert await run(client, "HGET", keys.inflight(Q), str(one.id)) == b"5"
    assert await streams.supersede(Q, one.id, 4) is None  # never lower
    assert await run(client, "HGET", keys.inflight(Q), str(one.id)) == b"5"


async def test_superseding_comes_before_a_publisher(streams: Streams, client: Any) -> None:
    one = task(4)
    assert await streams.supersede(Q, one.id, 5) is None
    assert (await streams.publish(Q, [one])).entries == 0


async def test_where_tasks_are(streams: Streams, client: Any) -> None:
    fetched, waiting, absent = task(1), task(2), task(3)
    await streams.publish(Q, [fetched])
    ((entry, _),) = await read(client, "w1")
    await streams.publish(Q, [waiting])
    pairs = [(one.id, one.token) for one in (fetched, waiting, absent)]
    places = await streams.locate(Q, [*pairs, (fetched.id, 9)])
    assert places[0][:2] == (entry, "w1")
    assert places[1].entry_id
    assert places[1].consumer == ""
    assert places[2:] == [Place(b"", "", 0)] * 2


async def test_a_consumer_is_forgotten_only_when_it_holds_nothing(
    streams: Streams, client: Any
) -> None:
    await streams.publish(Q, [task()])
    ((entry, _),) = await read(client, "w1")
    await streams.crews.forget_worker(Q, "w1")
    (consumer,) = (await streams.crews.of(Q)).workers
    assert (consumer.id, consumer.pending, consumer.sign) == ("w1", 1, None)
    await run(client, "XACK", keys.tasks(Q), keys.WORKERS_GROUP, entry)
    await streams.crews.forget_worker(Q, "nobody")
    await streams.crews.forget_worker(Q, "w1")
    assert (await streams.crews.of(Q)).workers == []


async def test_nodes_that_are_gone_are_forgotten(streams: Streams, client: Any) -> None:
    await streams.queues.announce(Q)
    for name in ("node-b", streams._link.node_id):
        words = ("XGROUP", "CREATECONSUMER", keys.reports(Q), keys.NODES_GROUP, name)
        await run(client, *words)
    await streams.reports.forget_nodes(Q, 60_000)
    info = await streams._link.command("XINFO GROUPS", keys.reports(Q))
    assert info[0]["consumers"] == 2
    await streams.reports.forget_nodes(Q, 0)  # all but itself
    info = await streams._link.command("XINFO GROUPS", keys.reports(Q))
    assert info[0]["consumers"] == 1


async def test_reports_of_a_dead_node_are_taken_over(streams: Streams, redis_url: str) -> None:
    dead = Streams(redis_url, "node-dead", timeout_s=5.0)
    await dead.queues.announce(Q)
    for n in range(450):  # more than a page
        await report(dead._link.client, id=str(uuid4()), token=n, outcome="completed")
    assert len(await dead.reports.read([Q], block_ms=1)) == 450
    await dead.close()
    assert await streams.reports.read([Q], block_ms=1) == []
    await streams.reports.take_over(Q, 60_000)
    assert await streams.reports.read([Q], block_ms=0, again=True) == []  # not idle for so long
    await streams.reports.take_over(Q, 0)
    assert len(await streams.reports.read([Q], block_ms=0, again=True)) == 450


async def test_c35_reports_deleted_while_pending_do_no_harm(
    streams: Streams, client: Any, redis_url: str
) -> None:
    dead = Streams(redis_url, "node-dead", timeout_s=5.0)
    await dead.queues.announce(Q)
    entries = [await report(client, id=str(uuid4()), token=1, outcome="x") for _ in range(16)]
    await dead.reports.read([Q], block_ms=1)
    await dead.close()
    await run(client, "XDEL", keys.reports(Q), *entries[:8])
    await streams.reports.take_over(Q, 0)
    taken = await streams.reports.read([Q], block_ms=0, again=True)
    assert [one.entry_id for one in taken if one.fields] == entries[8:]
    # Older servers hand the deleted ones over as well, without fields: settled like the others.
    await streams.reports.settle(Q, [(one.entry_id, b"", b"") for one in taken])
    pending = await run(client, "XPENDING", keys.reports(Q), keys.NODES_GROUP)
    assert pending[0] == 0


async def test_c35_tasks_deleted_while_pending_are_given_back(
    streams: Streams, client: Any
) -> None:
    await streams.publish(Q, [task() for _ in range(16)])
    entries = [entry for entry, _ in await read(client, "w1", 16)]
    await run(client, "XDEL", keys.tasks(Q), *entries[:8])
    held = await streams.crews.held_by(Q, "w1", 0, 100)
    assert [one.entry_id for one in held] == entries
    assert {(one.id, one.token) for one in held[:8]} == {("", "")}
    assert all(isinstance(one, Held) and one.token == "1" for one in held[8:])
    await streams.settle(Q, [(one.entry_id, one.id, one.token) for one in held])
    assert await streams.crews.held_by(Q, "w1", 0, 100) == []
    # Those that were deleted stay in flight: the reaper finds them by their claim's age.
    assert len((await streams.inflight_page(Q, 0))[1]) == 8


async def test_c36_scripts_are_loaded_again_when_the_server_forgot_them(
    streams: Streams, client: Any
) -> None:
    one = task()
    for token in range(1, 4):
        await streams.publish(Q, [one._replace(token=token)])
        await run(client, "SCRIPT FLUSH")
        assert len(await streams.locate(Q, [(one.id, token)])) == 1
        await run(client, "SCRIPT FLUSH")
    assert await run(client, "XLEN", keys.tasks(Q)) == 3


async def test_groups_are_made_anew_after_everything_was_lost(
    streams: Streams, client: Any
) -> None:
    await streams.publish(Q, [task()])
    await run(client, "FLUSHDB")
    with pytest.raises(ResponseError, match="NOGROUP"):
        await streams.reports.read([Q], block_ms=1)
    assert await streams.reports.mark(Q) == (None, b"0-0")
    assert await streams.reports.read([Q], block_ms=1) == []
    await run(client, "FLUSHDB")
    assert (await streams.crews.of(Q)).workers == []
    await run(client, "FLUSHDB")
    await streams.publish(Q, [task()])
    assert len(await read(client, "w")) == 1
    assert await streams.queues.names() == {Q}


async def test_a_loss_is_seen_by_every_node(streams: Streams, redis_url: str, client: Any) -> None:
    other = Streams(redis_url, "node-b", timeout_s=5.0)
    await streams.set_sentinel()
    before = await other.data_mark()
    await other.set_sentinel()  # it is there: this changes nothing
    assert await streams.data_mark() == before
    await run(client, "FLUSHDB")
    assert (await streams.data_mark())[1] is None
    await streams.set_sentinel()
    assert await other.data_mark() != before
    await other.close()


async def test_the_newest_report_is_known_also_when_it_is_gone(
    streams: Streams, client: Any
) -> None:
    await streams.queues.announce(Q)
    assert await streams.reports.mark(Q) == (None, b"0-0")
    first = await report(client, id="x")
    newest = await report(client, id="x")
    assert await streams.reports.mark(Q) == (first, newest)
    await run(client, "XDEL", keys.reports(Q), first, newest)
    assert await streams.reports.mark(Q) == (None, newest)


async def test_an_entry_acked_and_not_deleted_is_taken_out_with_its_report(
    streams: Streams, client: Any
) -> None:
    one = task()
    await streams.publish(Q, [one])
    ((entry, _),) = await read(client, "w")
    await run(client, "XACK", keys.tasks(Q), keys.WORKERS_GROUP, entry)
    told = await report(client, id=str(one.id), token=one.token, outcome="completed")
    await streams.reports.settle(Q, [(told, str(one.id), str(one.token))])
    assert await nothing_left(client)


async def test_an_entry_that_a_worker_let_go_without_a_report_is_absent(
    streams: Streams, client: Any
) -> None:
    acked, orphaned, waits = task(), task(), task()
    await streams.publish(Q, [acked])
    ((entry, _),) = await read(client, "w")
    await run(client, "XACK", keys.tasks(Q), keys.WORKERS_GROUP, entry)
    await streams.publish(Q, [orphaned])
    await read(client, "deleted")
    await run(client, "XGROUP", "DELCONSUMER", keys.tasks(Q), keys.WORKERS_GROUP, "deleted")
    await streams.publish(Q, [waits])
    places = await streams.locate(Q, [(one.id, one.token) for one in (acked, orphaned, waits)])
    assert [bool(place.entry_id) for place in places] == [False, False, True]
    assert (await streams.publish(Q, [acked, orphaned])).undelivered == 3


async def test_a_worker_whose_name_is_not_text_is_found_and_forgotten(
    streams: Streams, client: Any
) -> None:
    one, name = task(), b"w\xff\xfe"
    await streams.publish(Q, [one])
    await run(client, "XREADGROUP", "GROUP", keys.WORKERS_GROUP, name, "COUNT", 1,
              "STREAMS", keys.tasks(Q), ">")  # fmt: skip
    (consumer,) = (await streams.crews.of(Q)).workers
    assert (consumer.pending, consumer.sign) == (1, None)
    (held,) = await streams.crews.held_by(Q, consumer.id, 0, 10)
    assert held.id == str(one.id)
    (place,) = await streams.locate(Q, [(one.id, one.token)])
    assert place.consumer == consumer.id
    await streams.settle(Q, [(held.entry_id, held.id, held.token)])
    await streams.crews.forget_worker(Q, consumer.id)
    assert (await streams.crews.of(Q)).workers == []


async def test_a_queue_in_use_is_not_forgotten(streams: Streams, client: Any) -> None:
    one = task()
    await streams.publish(Q, [one])
    assert not await streams.queues.forget(Q)  # an entry
    await run(client, "DEL", keys.tasks(Q))
    assert not await streams.queues.forget(Q)  # its token
    await run(client, "DEL", keys.inflight(Q), keys.entries(Q))
    await run(client, "XADD", keys.reports(Q), "*", "a", "b")
    assert not await streams.queues.forget(Q)  # a report
    await run(client, "DEL", keys.reports(Q))
    await streams.queues.announce(Q)
    await run(client, "XGROUP", "CREATECONSUMER", keys.tasks(Q), keys.WORKERS_GROUP, "w1")
    assert not await streams.queues.forget(Q)  # a worker
    await run(client, "XGROUP", "DELCONSUMER", keys.tasks(Q), keys.WORKERS_GROUP, "w1")
    await streams.crews.of(Q)  # a mark is no worker
    assert await streams.queues.forget(Q)
    assert await streams.queues.names() == set()
    assert await run(client, "KEYS", f"duly:{{{Q}}}*") == []


async def test_a_publication_while_a_queue_is_forgotten_is_not_lost(
    streams: Streams, redis_url: str, client: Any
) -> None:
    other = Streams(redis_url, "node-b", timeout_s=5.0)
    try:
        forgotten = 0
        for number in range(200):
            queue = f"q{number}"
            await other.queues.announce(queue)

            async def publish(queue: str = queue, wait_s: float = number % 5 * 0.0003) -> None:
                await asyncio.sleep(wait_s)  # at another moment each time
                await other.publish(queue, [task()])

            done, _ = await asyncio.gather(streams.queues.forget(queue), publish())
            forgotten += done
            read = await run(
                client, "XREADGROUP", "GROUP", keys.WORKERS_GROUP, "w",
                "STREAMS", keys.tasks(queue), ">",
            )  # fmt: skip
            assert len(read[0][1]) == 1
            assert queue in await streams.queues.names()
        assert forgotten, "never at the same time"
    finally:
        await other.close()


async def test_c35_what_was_deleted_or_trimmed_does_not_hold_up_a_take_over(
    streams: Streams, client: Any
) -> None:
    await streams.queues.announce(Q)
    entries = [await run(client, "XADD", keys.reports(Q), "*", "n", n) for n in range(16)]
    await run(client, "XREADGROUP", "GROUP", keys.NODES_GROUP, "dead",
              "STREAMS", keys.reports(Q), ">")  # fmt: skip
    await run(client, "XDEL", keys.reports(Q), *entries[::2])
    await streams.reports.take_over(Q, 0)
    found = await streams.reports.read([Q], block_ms=0, again=True)
    kept = [one.entry_id for one in found if one.fields]
    assert kept == entries[1::2]
    await streams.reports.settle(Q, [(one.entry_id, b"", b"") for one in found])
    assert (await run(client, "XPENDING", keys.reports(Q), keys.NODES_GROUP))[0] == 0
