"""duly env: where the parts of a running `duly up` are, as variables for a shell."""

import argparse
import json
import shlex
from pathlib import Path
from typing import Any, Final

from duly.nodes.cli.errors import fail
from duly.nodes.embedded import default_data_dir

_VARIABLES: Final = {
    "api": "DULY_URL",
    "database": "DULY_DATABASE_URL",
    "redis": "DULY_REDIS_URL",
}


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
        urls = json.loads(path.read_text())
    except OSError as error:
        fail(
            f"cannot read {path}: {error.strerror}; is `duly up` running, and ready, with this --data?",
            1,
        )
    for key, name in _VARIABLES.items():
        print(f"export {name}={shlex.quote(urls[key])}")
    return 0
