"""The code of the pages does what they say, on a real node."""

import ast
import inspect
import re
from pathlib import Path
from typing import Any

import anyio
import asyncpg
import pytest
from node_rig import RunningNode
from waiting import wait_for
from worker_rig import running

import duly
from duly.actors.runtime import Actor, Child, Mailbox, Reply, Supervisor
from duly.contrib.aes_siv import AesSiv
from duly.nodes.client import Task
from duly.nodes.worker import Worker

DOCS = Path(__file__).parents[2] / "docs"


def blocks(page: str, language: str = "python") -> list[str]:
    """The page's code blocks of one language."""
    text = (DOCS / page).read_text()
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


async def execute(code: str, names: dict[str, Any]) -> None:
    """Run a block, which may `await` outside of functions, with these names."""
    compiled = compile(code, "docs", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    done = eval(compiled, names)
    if inspect.iscoroutine(done):
        await done


async def completed(node: RunningNode, task_type: str) -> Task:
    async def look() -> Task | None:
        tasks = [task async for task in node.client.list(type=task_type, status="completed")]
        return tasks[0] if tasks else None

    return await wait_for(look, 60, f"{task_type} is completed")


@pytest.fixture
async def connection(node: RunningNode) -> Any:
    made = await asyncpg.connect(node.settings.database_url, timeout=30)
    yield made
    await made.close()


async def test_many_and_periodic_tasks_of_the_client(
    node: RunningNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, many, periodic = blocks("client.md")
    rows = "id,at,to\na,2040-01-01T00:00:00Z,ada\nb,2040-01-02T00:00:00Z,bob\n"
    (tmp_path / "reminders.csv").write_text(rows)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"client": node.client, "duly": duly}
    await execute(many, names)
    stored = [await node.client.get(task_id) for task_id in names["ids"]]
    assert [task.payload["to"] for task in stored] == ["ada", "bob"]
    await execute(periodic, names)
    types = {task.type async for task in node.client.list(periodic=True)}
    assert types == {"report.nightly", "poll"}


async def test_a_concurrency_key(node: RunningNode) -> None:
    (code,) = blocks("concurrency.md")
    await execute(code, {"client": node.client})
    (task,) = await node.client.list(type="invoice.build")
    assert (task.concurrency_key, task.concurrency_limit) == ("customer-7", 3)


async def test_follow_ups(
    node: RunningNode, redis_url: str, capfd: pytest.CaptureFixture[str]
) -> None:
    submit, handler, join = blocks("follow-ups.md")
    worker = Worker(redis_url)
    for task_type in ("report.build", "part", "join"):
        worker.task(task_type)(lambda ctx: "built")
    names: dict[str, Any] = {"client": node.client, "duly": duly, "worker": worker}
    await execute(handler, names)
    async with running(worker):
        await execute(submit, names)
        await completed(node, "report.mail")
        assert f"{names['task'].id} completed built" in capfd.readouterr().out
        await execute(join, names)
        assert len(names["parts"]) == 10
        await completed(node, "join")


async def test_the_page_on_encryption(
    node: RunningNode, redis_url: str, connection: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, rotate, own = blocks("encryption.md")
    monkeypatch.setenv("DULY_KEY_2026_11", AesSiv.new_key())
    begin = begin.replace("http://127.0.0.1:8080", node.url)
    names: dict[str, Any] = {}
    await execute(begin.replace("redis://localhost:6379/0", redis_url), names)
    async with names["client"] as client, running(names["worker"]):
        task = await client.submit("letter.send", {"to": "Ada"})
        assert (await task.wait(60)).result == {"sent to": "Ada"}
        waiting = await client.submit("letter.send", {"to": "Bob"}, delay=3600)
        await execute(rotate, names)
        assert (await client.get(waiting.id)).version > waiting.version
        (count,) = blocks("encryption.md", "sql")
        assert [tuple(row) for row in await connection.fetch(count)] == [("2026-11", 1)]
    await execute(own, names)
    packed = names["Compressed"]()
    async with duly.Client(node.url, codec=packed) as client:
        task = await client.submit("letter.send", {"to": "Ada"}, delay=3600)
        assert (await client.get(task.id)).payload == {"to": "Ada"}


async def test_tasks_in_a_transaction_of_sql(connection: Any) -> None:
    submit, *grants = blocks("transactions.md", "sql")
    await connection.execute("create table orders (number int, customer text)")
    await connection.execute(submit)
    stored = await connection.fetch("select type, queue, priority from tasks order by type")
    assert [tuple(row) for row in stored] == [
        ("order.remind", "mail", 3),
        ("order.ship", "default", 5),
    ]
    async with connection.transaction():
        await connection.execute("create role shop")
        for grant in grants:
            await connection.execute(grant)
        ask = "select has_function_privilege('shop', $1, 'execute')"
        for function in (
            "duly.submit(text, jsonb, timestamptz, jsonb)",
            "duly.complete(uuid, bigint, jsonb, text)",
        ):
            assert await connection.fetchval(ask, function)
        await connection.execute("drop owned by shop")
        await connection.execute("drop role shop")


async def test_tasks_in_a_transaction_of_python(
    node: RunningNode, redis_url: str, connection: Any
) -> None:
    submit, handler = blocks("transactions.md")
    await connection.execute("create table orders (number int)")
    names: dict[str, Any] = {"connection": connection, "duly": duly, "worker": Worker(redis_url)}
    await execute(submit, names)
    assert (await node.client.get(names["task_id"])).payload == {"order": 4711}

    await connection.execute("create table accounts (id int, balance int)")
    await connection.execute("insert into accounts values (1, 100)")
    async with asyncpg.create_pool(node.settings.database_url, min_size=1, max_size=2) as pool:
        names["pool"] = pool
        await execute(handler, names)
        async with running(names["worker"]):
            await node.client.submit("account.debit", {"id": 1, "amount": 30})
            assert (await completed(node, "account.debit")).result == {"debited": 30}
    assert await connection.fetchval("select balance from accounts") == 70


async def test_an_actor() -> None:
    (code,) = blocks("actors.md")

    class Greet:
        def __init__(self, name: str) -> None:
            self.name = name
            self.reply: Reply[str] = Reply()

    names: dict[str, Any] = {
        "Actor": Actor, "Child": Child, "Mailbox": Mailbox, "Supervisor": Supervisor,
        "Greet": Greet, "anyio": anyio,
    }  # fmt: skip
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(execute, code, names)
        box = await wait_for(lambda: names.get("box"), 60, "the mailbox is there")
        greet = Greet("Ada")
        await box.send(greet)
        assert await greet.reply.wait(60) == "Hello, Ada"
        names["supervisor"].request_stop()


@pytest.mark.parametrize(
    ("page", "task_type"), [("crontab.md", "shell"), ("http-targets.md", "http")]
)
async def test_the_bundled_workers(
    page: str, task_type: str, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DULY_REDIS_URL", redis_url)
    names: dict[str, Any] = {}
    await execute(blocks(page)[-1], names)
    assert names["worker"].types == [task_type]


def test_every_page_with_python_is_run_by_a_test() -> None:
    pages = {path.name for path in DOCS.rglob("*.md") if blocks(str(path.relative_to(DOCS)))}
    here = Path(__file__)
    tests = [
        path for path in here.parents[1].rglob("test_*.py") if "docs_commands" not in path.name
    ]
    run = "".join(path.read_text() for path in tests)
    assert {page for page in pages if f'"{page}"' not in run} == set()
    assert len(pages) >= 9
