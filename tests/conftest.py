"""Fixtures for all tests: the loop that nodes run on, and real servers that start when first asked for.

Set `DULY_TEST_DATABASE_URL` or `DULY_TEST_REDIS_URL` to test on servers of your own: databases are made
on the first and dropped again; the database number that the second names is flushed by every test.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from databases import Databases, run_aside
from hypothesis import HealthCheck, settings
from postgres_pair import PostgresPair
from processes import Processes
from servers import (
    ServerFactory,
    copy_template,
    discard,
    make_template,
    new_folder,
    new_servers,
    remove_folder,
)

from duly.nodes.embedded import EmbeddedServers

# Property tests have no deadline: on a busy machine time says nothing about the code. They try the same
# examples in each run; `pytest --hypothesis-profile=random` looks for others.
settings.register_profile(
    "random", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.register_profile("same", settings.get_profile("random"), derandomize=True)
settings.load_profile("same")


@pytest.fixture(scope="session")
def anyio_backend() -> tuple[str, dict[str, Any]]:
    """Async tests run on uvloop, as nodes do; each test has a loop of its own."""
    return "asyncio", {"use_uvloop": True}


@pytest.fixture(scope="session")
def server_template() -> Iterator[Path]:
    """A folder to copy for quick starts of servers."""
    folder = make_template()
    yield folder
    remove_folder(folder)


@pytest.fixture(scope="session")
def shared_servers(server_template: Path) -> Iterator[EmbeddedServers]:
    """One pair of servers for the whole run; never stop, pause or kill these."""
    servers = new_servers(server_template)
    yield servers
    discard(servers)


@pytest.fixture(scope="session")
def databases(request: pytest.FixtureRequest) -> Iterator[Databases]:
    """Makes databases on the run's PostgreSQL server."""
    given = os.environ.get("DULY_TEST_DATABASE_URL")
    made = Databases(given or request.getfixturevalue("shared_servers").database_url)
    yield made
    made.close()


@pytest.fixture(scope="session")
def template_url(databases: Databases) -> str:
    """URL of a migrated, empty database to copy; nobody may stay connected to it."""
    from duly.storage.migrate import migrate

    url = databases.create()
    run_aside(migrate(url))
    return url


@pytest.fixture(scope="session")
def database_url(databases: Databases, template_url: str) -> str:
    """URL of a migrated database that all tests share: expect rows of others."""
    return databases.create(template_url)


@pytest.fixture
def fresh_database(databases: Databases, template_url: str) -> Iterator[str]:
    """URL of a migrated, empty database for this test alone."""
    url = databases.create(template_url)
    yield url
    databases.drop(url)


@pytest.fixture
def two_stores(databases: Databases, template_url: str) -> Iterator[list[str]]:
    """URLs of two migrated, empty databases for this test alone."""
    urls = [databases.create(template_url) for _ in range(2)]
    yield urls
    for url in urls:
        databases.drop(url)


@pytest.fixture
def blank_database(databases: Databases) -> Iterator[str]:
    """URL of a database without a schema, for this test alone."""
    url = databases.create()
    yield url
    databases.drop(url)


@pytest.fixture(scope="session")
def redis_server_url(request: pytest.FixtureRequest) -> str:
    """URL of the run's Redis server."""
    given = os.environ.get("DULY_TEST_REDIS_URL")
    return given or str(request.getfixturevalue("shared_servers").redis_url)


@pytest.fixture
def redis_url(redis_server_url: str) -> str:
    """URL of an empty Redis database; tests run one by one, so that it is this test's alone."""
    with redis.Redis.from_url(redis_server_url, socket_timeout=10) as connection:
        connection.flushdb()
    return redis_server_url


@pytest.fixture
def make_servers(server_template: Path) -> Iterator[ServerFactory]:
    """Call it for a started pair of servers of one's own, to be paused and killed at will."""
    made: list[EmbeddedServers] = []

    def make() -> EmbeddedServers:
        made.append(new_servers(server_template))
        return made[-1]

    yield make
    for servers in made:
        discard(servers)


@pytest.fixture
def postgres_pair(make_servers: ServerFactory) -> Iterator[PostgresPair]:
    """A primary and its synchronous standby, to be killed and promoted at will; without a schema."""
    pair = PostgresPair(make_servers().postgres)
    yield pair
    pair.close()


@pytest.fixture
def data_folder() -> Iterator[Path]:
    """An empty folder for embedded servers; what is left over in it is killed."""
    folder = new_folder()
    yield folder
    remove_folder(folder)


@pytest.fixture
def seeded_folder(data_folder: Path, server_template: Path) -> Path:
    """A folder in which servers had been started before: the next start is quick."""
    copy_template(server_template, data_folder)
    return data_folder


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    """Starts child processes, which end with the test at the latest."""
    started = Processes(tmp_path)
    yield started
    started.close()
