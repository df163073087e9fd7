"""A Redis Cluster by TLS and with a password: the servers tell of the ports where TLS is spoken."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trustme
from node_rig import running_node
from redis_cluster import TestCluster, cluster, command
from waiting import wait_for
from worker_rig import running

import duly
from duly.storage.redis import TROUBLE, call, connect_any


@asynccontextmanager
async def by_tls(servers: TestCluster, folder: Path) -> AsyncIterator[Sequence[int]]:
    """The ports of a TLS end before each server, to which the cluster sends its clients."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "authority.pem")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    tasks: set[asyncio.Task[None]] = set()

    async def serve(port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", port)
        for one, other in ((reader, back), (there, writer)):
            tasks.add(asyncio.create_task(_pass_on(one, other)))

    ends = [
        await asyncio.start_server(partial(serve, one.port), "127.0.0.1", 0, ssl=context)
        for one in servers.primaries
    ]
    ports = [int(end.sockets[0].getsockname()[1]) for end in ends]
    try:
        for server, port in zip(servers.primaries, ports, strict=True):
            await command(server, "CONFIG", "SET", "cluster-announce-port", port)
        for server in servers.primaries:

            async def told(one: object = server) -> bool:
                slots = await command(one, "CLUSTER SLOTS")  # type: ignore[arg-type]
                return {place[2][1] for place in slots} == set(ports)

            await wait_for(told, 60, "all know the new ports")
        yield ports
    finally:
        for end in ends:
            end.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass  # the other end is told by the close
    finally:
        writer.close()


async def test_tasks_run_by_tls_and_with_a_password(
    fresh_database: str, tmp_path: Path, redis_url: str
) -> None:
    async with cluster(tmp_path) as servers, by_tls(servers, tmp_path) as ports:
        for server in servers.primaries:
            rights = ("on", ">p@ss", "~duly:*", "&duly:*", "+@all")
            await command(server, "ACL", "SETUSER", "duly", *rights)
        hosts = ",".join(f"127.0.0.1:{port}" for port in ports[1:])
        url = f"rediss+cluster://duly:p%40ss@{hosts}?ssl_ca_certs={tmp_path / 'authority.pem'}"
        queues = [servers.queue_on(n) for n in range(3)]
        worker = duly.Worker(url, queues=queues, id="w")

        @worker.task("t")
        async def work(ctx: duly.Context) -> None: ...

        async with (
            running_node(fresh_database, url, lease_redis_urls=(redis_url,)) as node,
            running(worker),
        ):
            for queue in queues:
                await node.client.submit("t", queue=queue)

            async def ended() -> bool:
                return await node.count("finished_tasks") == 3

            await wait_for(ended, 60, "all have ended")
        for wrong in (url.replace("p%40ss", "other"), url.partition("?")[0]):
            client = connect_any(wrong, name="test")
            with pytest.raises(TROUBLE, match=r"invalid username-password|certificate"):
                await call(client, "GET", "duly:k", timeout_s=5)
            await client.aclose()
