"""What `import duly` gives."""

import subprocess
import sys
from importlib.metadata import version

import pytest

import duly


def test_the_public_names_are_these() -> None:
    assert sorted(duly.__all__) == [
        "AlreadyDone",
        "ApiError",
        "Client",
        "Codec",
        "CodecError",
        "Conflict",
        "Context",
        "Cron",
        "DulyError",
        "Every",
        "Fail",
        "Invalid",
        "Next",
        "NotEncrypted",
        "NotFound",
        "Occurrence",
        "Parent",
        "PreconditionFailed",
        "Queue",
        "RejectedReport",
        "Retry",
        "Run",
        "Snooze",
        "Superseded",
        "SyncClient",
        "Tampered",
        "Task",
        "TooLarge",
        "Unauthorized",
        "Unavailable",
        "UnknownKey",
        "Unreachable",
        "Unreadable",
        "Verdict",
        "Worker",
        "create_effects_table",
        "submit_in",
        "submit_in_sync",
    ]
    for name in duly.__all__:
        assert getattr(duly, name).__name__ == name
        assert name in dir(duly)
    assert duly.__version__ == version("duly")


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        duly.Nothing  # type: ignore[attr-defined]  # noqa: B018 - the point of the test


@pytest.mark.parametrize(
    ("program", "absent"),
    [
        ("import duly", ["aiohttp", "redis", "msgspec"]),
        ("import duly; duly.Client", ["redis"]),
    ],
)
def test_nothing_is_loaded_before_it_is_used(program: str, absent: list[str]) -> None:
    check = f"{program}; import sys; print([m for m in {absent!r} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-P", "-c", check], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
