"""A node that is started while PostgreSQL is away waits for it; one that it refuses does not."""

import socket
from urllib.parse import urlsplit

import pytest
from processes import Child, Processes
from servers import ServerFactory

from duly.nodes.embedded import EmbeddedServers

WAITING = r"reaching PostgreSQL fails, trying on: no connection to PostgreSQL: 127\.0\.0\.1:"


@pytest.fixture
def servers(make_servers: ServerFactory) -> EmbeddedServers:
    return make_servers()


def start(processes: Processes, database_url: str, redis_url: str) -> Child:
    environment = {
        "DULY_DATABASE_URL": database_url,
        "DULY_REDIS_URL": redis_url,
        "DULY_PORT": "0",
    }
    return processes.python("-m", "duly", "node", env=environment)


def test_it_waits_says_so_once_and_goes_on(processes: Processes, servers: EmbeddedServers) -> None:
    servers.postgres.kill9()
    node = start(processes, servers.database_url, servers.redis_url)
    node.wait_for_line(WAITING)
    servers.postgres.restart()
    node.wait_for_line("reaching PostgreSQL works again")
    node.wait_for_line("listening on")
    assert node.output.count("trying on: no connection to PostgreSQL") == 1
    assert node.stop() == 0


def test_while_it_waits_a_signal_ends_it(processes: Processes) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1]
        node = start(processes, f"postgresql://u@127.0.0.1:{port}/d", "redis://127.0.0.1:1")
        node.wait_for_line(WAITING)
        assert node.stop() == 0
    assert "stopped before it had started" in node.output


@pytest.mark.parametrize("wrong", ["password", "database"])
def test_what_is_wrong_for_good_ends_it_at_once(
    processes: Processes, shared_servers: EmbeddedServers, wrong: str
) -> None:
    url = urlsplit(shared_servers.database_url)
    if wrong == "database":
        asked = url._replace(path="/nowhere").geturl()
        said = 'database "nowhere" does not exist'
    else:
        asked = url._replace(netloc=url.netloc.replace(str(url.password), "hush")).geturl()
        said = "password authentication failed"
    node = start(processes, asked, shared_servers.redis_url)
    assert node.wait(60) == 1
    assert said in node.output
    assert "hush" not in node.output
    assert "trying on" not in node.output
