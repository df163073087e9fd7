"""Figures by minute in a real Redis."""

from redis.asyncio import Redis

from duly.storage import keys
from duly.storage.statistics import Statistics


async def test_each_node_has_its_place_in_a_minute(redis_url: str) -> None:
    first, second = Statistics(redis_url, "a", 5.0), Statistics(redis_url, "b", 5.0)
    client = Redis.from_url(redis_url)
    try:
        await first.write(7, b"\x00old")
        await first.write(7, b"\x00\xffnew")
        await second.write(7, b"b")
        await second.write(9, b"c")
        assert await first.read([7, 8, 9]) == {
            7: {"a": b"\x00\xffnew", "b": b"b"},
            8: {},
            9: {"b": b"c"},
        }
        assert 0 < await client.pttl(keys.statistics(7)) <= keys.STATISTICS_TTL_MS
    finally:
        await client.aclose()
        await first.close()
        await second.close()
