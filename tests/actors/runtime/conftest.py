"""The runtime's tests run on virtual time: a grace of an hour is over at once."""

from typing import Any

import pytest
from virtual_time import VIRTUAL_TIME


@pytest.fixture(scope="session")
def anyio_backend() -> tuple[str, dict[str, Any]]:
    """Async tests of this folder run on a loop with a virtual clock."""
    return VIRTUAL_TIME
