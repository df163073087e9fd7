"""duly env: where the parts of a running `duly up` are, as variables for a shell."""

import argparse
import shlex
from pathlib import Path
from typing import Any, Final, TypedDict

import msgspec

from duly.nodes.cli.errors import fail
from duly.nodes.embedded import default_data_dir

_VARIABLES: Final = ("DULY_URL", "DULY_DATABASE_URL", "DULY_REDIS_URL")


class _Urls(TypedDict):
    api: str
    database: str
    redis: str


def add_to(commands: Any) -> None:
    """Add this sub-command."""
    env = commands.add_parser(
        "env",
        help="where a running `duly up` is, as shell variables",
        description="Print DULY_URL, DULY_DATABASE_URL and DULY_REDIS_URL of a running `duly up` as exports "
        'for a shell: eval "$(duly env)". The URLs hold passwords.',
    )
    default = str(default_data_dir()).replace("%", "%%")
    env.add_argument("--data", type=Path, metavar="DIR", help="data folder of that `duly up` "
                     f"(default: DULY_HOME, else {default})")  # fmt: skip
    env.set_defaults(run=run_env)


def run_env(args: argparse.Namespace) -> int:
    """duly env."""
    path = (args.data or default_data_dir()) / "urls.json"
    try:
        urls = msgspec.json.decode(path.read_bytes(), type=_Urls)
    except OSError as error:
        fail(
            f"cannot read {path}: {error.strerror}; is `duly up` running, and ready, with this --data?",
            1,
        )
    except ValueError:
        fail(f"{path} is not what `duly up` writes: stop it, and start it again", 1)
    for name, url in zip(_VARIABLES, (urls["api"], urls["database"], urls["redis"]), strict=True):
        print(f"export {name}={shlex.quote(url)}")
    return 0
