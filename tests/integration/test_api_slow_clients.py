"""C48: clients that send a byte now and then, or hold connections, and those that just use the API."""

import asyncio
from urllib.parse import urlsplit

from node_rig import RunningNode, running_node

_SLOW = 150  # of each kind
_ENDED_S = 25.0  # aiohttp alone would let heads drip for 75 s, and our own limit for bodies is 30 s
_HEAD = b"POST /v1/tasks HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


async def test_c48_clients_that_drip_are_ended_while_others_go_on(
    fresh_database: str, redis_url: str
) -> None:
    async with running_node(fresh_database, redis_url, request_timeout_s=2.0) as node:
        patient = await _connect(node)
        await _ask(patient)
        body = _HEAD + b"Content-Length: 1000000\r\n\r\n"
        drips = [asyncio.create_task(_drip(node, b"")) for _ in range(_SLOW)]
        drips += [asyncio.create_task(_drip(node, body)) for _ in range(_SLOW)]
        submitted = 0
        async with asyncio.timeout(_ENDED_S):
            while not all(drip.done() for drip in drips):
                await node.client.submit("a", run_at="2040-01-01T00:00:00Z")
                submitted += 1
            await asyncio.gather(*drips)
        assert await node.count() == submitted > 0
        await _ask(patient)  # it has been idle for longer than a request may take
        patient[1].close()


async def test_c48_connections_are_capped(fresh_database: str, redis_url: str) -> None:
    async with running_node(fresh_database, redis_url, max_connections=5) as node:
        await node.call("GET", "/healthz")  # this one is kept
        held = [await _connect(node) for _ in range(4)]
        for connection in held:
            await _ask(connection)
        reader, writer = await _connect(node)
        answer = await asyncio.wait_for(reader.read(), 30)
        writer.close()
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert (await node.call("GET", "/healthz")).status == 200
        held[0][1].close()
        await _until_let_in(node)
        for _, writer in held[1:]:
            writer.close()


Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def _connect(node: RunningNode) -> Connection:
    parts = urlsplit(node.url)
    return await asyncio.open_connection(parts.hostname, parts.port)


async def _ask(connection: Connection) -> None:
    """Ask over a connection that is kept."""
    reader, writer = connection
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
    async with asyncio.timeout(30):
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 ")
        await reader.readuntil(b"}")


async def _drip(node: RunningNode, begin: bytes) -> None:
    """Send a request a byte at a time until the node ends the connection."""
    reader, writer = await _connect(node)
    ended = asyncio.create_task(reader.read())
    writer.write(begin)
    for at in range(1_000_000):
        if ended.done():
            break
        try:
            writer.write(_HEAD[at % 20 : at % 20 + 1] if not begin else b" ")
            await writer.drain()
        except ConnectionError:
            break
        await asyncio.wait({ended}, timeout=0.2)
    await asyncio.wait({ended})
    ended.exception()  # a reset is an end as well
    writer.close()


async def _until_let_in(node: RunningNode) -> None:
    async with asyncio.timeout(30):
        while True:
            connection = await _connect(node)
            connection[1].write(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            answer = await connection[0].read()
            connection[1].close()
            if b" 200 " in answer:
                return
