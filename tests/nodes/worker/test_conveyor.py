"""The Redis side of the worker's protocol, on a real server."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from private_valkey import PrivateValkey
from redis.exceptions import OutOfMemoryError
from waiting import wait_for
from worker_rig import FakeNode, until

from duly.storage import keys
from duly.storage.conveyor import (
    Conveyor,
    Entry,
    GroupMissingError,
    Unreadable,
    parse_entry,
)


@pytest.fixture
async def conveyor(node: FakeNode) -> AsyncIterator[Conveyor]:
    made = Conveyor(node.url, "w1")
    await made.create_group("default")
    yield made
    await made.close()


def words(**fields: str) -> list[bytes]:
    return [word.encode() for item in fields.items() for word in item]


def test_an_entry_is_read_with_defaults_for_what_may_be_absent() -> None:
    read = parse_entry("q", b"1-0", words(id="a", token="7", type="t", due="1790000000000.25"))
    assert read == Entry(
        queue="q",
        entry_id=b"1-0",
        id="a",
        token=7,
        type="t",
        payload=b"null",
        due_us=1790000000000250,
        attempt=1,
        timeout_s=300.0,
        confirm=False,
    )


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"token": "1", "type": "t", "due": "1"}, "field 'id' is missing"),
        ({"id": "a", "token": "x", "type": "t", "due": "1"}, "invalid literal"),
        ({"id": "a", "token": "1", "type": "t", "due": "inf"}, "infinity"),
        ({"id": "a", "token": "1", "type": "t", "due": "1", "timeout": "nan"}, "length of time"),
        ({"id": "a", "token": "1", "type": "t", "due": "1", "timeout": "0"}, "length of time"),
    ],
)
def test_an_entry_that_breaks_the_protocol_is_named(fields: dict[str, str], reason: str) -> None:
    read = parse_entry("q", b"1-0", words(**fields))
    assert isinstance(read, Unreadable)
    assert reason in read.reason


def test_a_deleted_entry_is_unreadable() -> None:
    assert isinstance(parse_entry("q", b"1-0", None), Unreadable)


async def test_a_group_is_made_once_and_sees_what_was_there_before(node: FakeNode) -> None:
    early = await node.dispatch("t", queue="early")
    conveyor = Conveyor(node.url, "w1")
    await conveyor.create_group("early")
    await conveyor.create_group("early")
    (entry,) = await conveyor.read(["early"], 10, 0)
    assert isinstance(entry, Entry)
    assert entry.id == early
    await conveyor.close()


async def test_reading_without_a_group_says_so(conveyor: Conveyor) -> None:
    with pytest.raises(GroupMissingError):
        await conveyor.read(["default", "nowhere"], 1, 0)
    with pytest.raises(GroupMissingError):
        await conveyor.pending("nowhere")


async def test_a_report_gives_its_entry_back(conveyor: Conveyor, node: FakeNode) -> None:
    for _ in range(3):
        await node.dispatch("t")
    entries = await conveyor.read(["default"], 10, 0)
    items: list[tuple[bytes, list[str]]] = [(e.entry_id, ["id", "x"]) for e in entries]
    items[1] = (items[1][0], [])
    await conveyor.report("default", items)
    await node.empty()
    assert len(await node.reports()) == 2


async def test_a_report_is_kept_when_its_entry_is_gone(conveyor: Conveyor, node: FakeNode) -> None:
    await conveyor.report("default", [(b"1-1", ["id", "x"])])
    assert [report.id for report in await node.reports()] == ["x"]


async def test_a_report_is_added_once_whatever_is_in_the_place_of_its_entry(
    conveyor: Conveyor, node: FakeNode
) -> None:
    await node.call("DEL", keys.tasks("default"))
    await node.call("SET", keys.tasks("default"), "something else")
    await conveyor.report("default", [(b"1-1", ["id", "x"])])
    assert [report.id for report in await node.reports()] == ["x"]


async def test_a_full_server_does_not_make_a_live_worker_look_dead(own_node: FakeNode) -> None:
    conveyor = Conveyor(own_node.url, "w1")
    try:
        await conveyor.beat(b"{}")
        await own_node.call("PEXPIRE", keys.worker("w1"), 5_000)
        await own_node.call("CONFIG", "SET", "maxmemory", 1)
        await conveyor.beat(b"{}")
        assert await own_node.call("PTTL", keys.worker("w1")) > 5_000
        await own_node.call("DEL", keys.worker("w1"))
        with pytest.raises(OutOfMemoryError):
            await conveyor.beat(b"{}")
    finally:
        await conveyor.close()


async def test_reports_survive_the_loss_of_the_script(conveyor: Conveyor, node: FakeNode) -> None:
    await conveyor.report("default", [(b"1-1", ["id", "x"])])
    await node.call("SCRIPT", "FLUSH")
    await conveyor.report("default", [(b"1-2", ["id", "y"])])
    assert [report.id for report in await node.reports()] == ["x", "y"]


async def test_what_is_pending_is_found_page_by_page(
    conveyor: Conveyor, node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duly.storage.conveyor.PENDING_PAGE", 2)
    for _ in range(5):
        await node.dispatch("t")
    read = await conveyor.read(["default"], 5, 0)
    await node.dispatch("t")
    pending = await conveyor.pending("default")
    assert await conveyor.fetch("default", pending) == read
    await node.call("XDEL", keys.tasks("default"), pending[0])
    (gone,) = await conveyor.fetch("default", pending[:1])
    assert isinstance(gone, Unreadable)


async def test_a_blocked_read_can_be_ended(conveyor: Conveyor, node: FakeNode) -> None:
    reading = asyncio.create_task(conveyor.read(["default"], 1, 60_000))
    await until(node.reading, "a blocked read")
    await conveyor.unblock()
    assert await asyncio.wait_for(reading, 30) == []


async def test_control_messages_arrive(conveyor: Conveyor, node: FakeNode) -> None:
    async with conveyor.listen() as next_message:
        await node.call("PUBLISH", keys.control("w1"), "hello")
        assert await wait_for(lambda: next_message(1.0), 60, "a message") == b"hello"
        assert await next_message(0.1) is None


async def test_a_dead_control_channel_is_noticed(
    own_node: FakeNode, valkey: PrivateValkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duly.storage.conveyor.COMMAND_TIMEOUT_S", 2.0)
    conveyor = Conveyor(own_node.url, "w1")
    async with conveyor.listen() as next_message:
        for _ in range(3):
            assert await next_message(0.01) is None  # silent, and answers when asked
        valkey.pause()
        with pytest.raises(TimeoutError):
            await next_message(0.01)
        valkey.resume()
    await conveyor.close()


async def test_c31_cancelled_calls_never_pass_their_answer_on(
    conveyor: Conveyor, node: FakeNode
) -> None:
    """C31: a connection whose answer was not read must not serve the next call."""
    for number in range(100):
        await node.call("HSET", keys.inflight("default"), f"id{number}", number)
    cut_off = 0
    for number in range(200):
        calls = [asyncio.create_task(conveyor.tokens("default", [f"id{n}"])) for n in range(3)]
        for _ in range(number % 8):
            await asyncio.sleep(0)
        for call in calls:
            call.cancel()
        ends = await asyncio.gather(*calls, return_exceptions=True)
        cut_off += sum(isinstance(end, asyncio.CancelledError) for end in ends)
        wanted = number % 100
        assert await conveyor.tokens("default", [f"id{wanted}"]) == [b"%d" % wanted]
    assert cut_off > 100


async def test_c31_a_cancelled_read_never_passes_its_answer_on(
    conveyor: Conveyor, node: FakeNode
) -> None:
    """C31, for the connection that reads the streams."""
    for number in range(50):
        reading = asyncio.create_task(conveyor.read(["default"], 1, 1_000))
        for _ in range(number % 10):
            await asyncio.sleep(0)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        await node.dispatch("t", queue="other")
        await conveyor.create_group("other")
        (entry,) = await conveyor.read(["other"], 1, 1_000)
        assert entry.queue == "other"


async def test_a_server_that_hangs_ends_in_a_timeout(
    own_node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duly.storage.conveyor.COMMAND_TIMEOUT_S", 1.0)
    conveyor = Conveyor(own_node.url, "w1")
    await conveyor.create_group("default")
    await own_node.call("CLIENT", "PAUSE", "600000", "ALL")
    with pytest.raises(TimeoutError):
        await conveyor.read(["default"], 1, 1)
    await conveyor.close()
