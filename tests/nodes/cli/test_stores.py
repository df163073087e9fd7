"""duly store: check and move-slots."""

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4

from moves_rig import ends
from stores_rig import running_stores

from duly.storage import stores

Duly = Callable[..., Awaitable[Any]]


async def test_the_commands_say_what_fits_and_move(
    two_stores: list[str], redis_url: str, duly: Duly
) -> None:
    urls = ["--database-urls", ",".join(two_stores)]
    async with running_stores(two_stores, redis_url) as node:
        task = (await node.client.submit("t", delay=3600)).id
        looked = await duly("store", "check", *urls)
        assert looked.code == 0, looked.err
        assert "store 0 (" in looked.out
        assert "slots 0-127" in looked.out
        assert "slots 128-255" in looked.out
        for wrong, said in (
            (["--from", "0", "--to", "2", "--slots", "1"], "there is no store 2"),
            (["--from", "1", "--to", "1", "--slots", "1"], "the same store"),
            (["--from", "0", "--to", "1", "--slots", "9-1"], "must be a slot"),
            (["--from", "1", "--to", "0", "--slots", "5"], "slot 5 is not in store 1"),
        ):
            refused = await duly("store", "move-slots", *urls, "--redis-url", redis_url, *wrong)
            assert refused.code != 0
            assert said in refused.err
        done = await duly(
            "store", "move-slots", *urls, "--redis-url", redis_url,
            "--from", "0", "--to", "1", "--slots", "0-127",
        )  # fmt: skip
        assert done.code == 0, done.err
        assert "moved the slots 0-127 with" in done.out
        assert (await node.client.get(task)).status == "pending"
        looked = await duly("store", "check", *urls)
        assert "slots none" in looked.out
    swapped = await duly("store", "check", "--database-urls", ",".join(reversed(two_stores)))
    assert (swapped.code, "in their order" in swapped.err) == (1, True)


async def test_a_node_that_does_not_know_the_store_is_named(
    two_stores: list[str], redis_url: str, duly: Duly
) -> None:
    async with running_stores(two_stores, redis_url) as node:
        await node.contexts[1].members.leave()
        refused = await duly(
            "store", "move-slots", "--database-urls", ",".join([*two_stores, two_stores[0] + "_other"]),
            "--redis-url", redis_url, "--from", "0", "--to", "1", "--slots", "3",
        )  # fmt: skip
    assert refused.code == 1
    assert "does not work on store" in refused.err


async def test_a_move_that_was_broken_off_is_told_of_and_undone(
    two_stores: list[str], redis_url: str, duly: Duly
) -> None:
    urls = ["--database-urls", ",".join(two_stores)]
    await stores.bring_up(two_stores)
    async with ends(two_stores, 0, 1)[0] as source:
        await source.begin(target=False)
        await source.value("move_watch", list(range(64, 128)), 1)
        looked = await duly("store", "check", *urls)
        assert looked.code == 0, looked.err
        assert (
            "slots 64-127 are on their way to store 1: still in store 0, being copied; the move is under way"
            in looked.out
        )
    again = "Nobody is at it: duly store move-slots --from 0 --to 1 --slots 64-127 finishes it"
    assert again in (await duly("store", "check", *urls)).out
    async with ends(two_stores, 0, 1)[0] as source:
        await source.begin(target=False)
        await source.locking("move_fence", list(range(64, 128)), uuid4(), 5.0)
    looked = await duly("store", "check", *urls)
    assert looked.code == 1
    assert "in neither store, and safe here until nodes take them back" in looked.out
    assert "nobody works on the slots 64-127" in looked.out
    undone = await duly(
        "store", "move-slots", *urls, "--redis-url", redis_url,
        "--from", "0", "--to", "1", "--slots", "64-127", "--undo",
    )  # fmt: skip
    assert (undone.code, undone.out) == (0, "the slots 64-127 stay in store 0\n"), undone.err
    looked = await duly("store", "check", *urls)
    assert looked.code == 0
    assert "on their way" not in looked.out
