"""What `duly doctor` says of a Redis Cluster."""

from pathlib import Path

from private_valkey import several
from redis_cluster import cluster, command
from waiting import wait_for

from duly.storage import cluster_checkup
from duly.storage.checkup import Finding


def said(found: list[Finding], level: str) -> str:
    return "\n".join(f"{one.about}: {one.said}" for one in found if one.level == level)


async def test_a_whole_cluster_and_one_of_which_a_primary_is_away(tmp_path: Path) -> None:
    async with cluster(tmp_path, replicas=1) as servers:
        found, answers = await cluster_checkup.look(servers.url, "Redis")
        assert answers
        assert said(found, "bad") == ""
        assert "all slots are served" in said(found, "ok")
        assert said(found, "warn").count("has no replica") == 2
        assert "full-coverage" not in said(found, "warn")
        for server in servers.servers:
            await command(server, "CONFIG", "SET", "cluster-require-full-coverage", "yes")
        found, _ = await cluster_checkup.look(servers.url, "Redis")
        assert "cluster-require-full-coverage is yes" in said(found, "warn")

        gone = servers.primaries[1]
        gone.stop()

        async def told() -> str | None:
            found, answers = await cluster_checkup.look(servers.url, "Redis")
            bad = said(found, "bad")
            assert answers
            return bad if "slots are served" in bad else None

        bad = await wait_for(told, 60, "the rest notices")
        assert f"Redis 127.0.0.1:{gone.port}: " in bad


async def test_what_is_no_cluster_or_does_not_answer_is_bad(tmp_path: Path) -> None:
    with several(tmp_path, 1) as servers:
        for port in (servers[0].port, 1):
            found, answers = await cluster_checkup.look(
                f"redis+cluster://127.0.0.1:{port}", "Redis"
            )
            assert not answers
            assert [one.level for one in found] == ["bad"]
            assert str(port) in found[0].said
