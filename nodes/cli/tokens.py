"""duly token new: a token for the API, and the line of the setting `tokens` that lets it in."""

import argparse
import hashlib
import secrets
import sys
from typing import Any, Final, get_args

from duly.nodes.cli.errors import fail
from duly.nodes.setting_values import Role, read_tokens

_PREFIX: Final = "duly_"
"""So that scanners for leaked secrets, and people, see what it is."""

_RANDOM_BYTES: Final = 32


def add_to(commands: Any) -> None:
    """Add this sub-command."""
    token = commands.add_parser("token", help="make access tokens of the API")
    actions = token.add_subparsers(metavar="new", required=True, help="make one")
    new = actions.add_parser(
        "new",
        description="Make a token of 32 random bytes and print it, once, with the line for the "
        "setting tokens (DULY_TOKENS) of the nodes, which holds only its hash.",
    )
    new.add_argument("name", help="whose it is: 1 to 100 of A-Z a-z 0-9 _ . @ -")
    new.add_argument("role", choices=get_args(Role), metavar="role",
                     help="what it may do: read, payload-view, submit or admin")  # fmt: skip
    new.add_argument("--expires", metavar="TIME",
                     help="from when on it is refused, such as 2027-01-31T00:00Z (default: never)")  # fmt: skip
    new.set_defaults(run=run_new)


def run_new(args: argparse.Namespace) -> int:
    """duly token new."""
    token = _PREFIX + secrets.token_urlsafe(_RANDOM_BYTES)
    parts = [args.name, args.role, hashlib.sha256(token.encode()).hexdigest()]
    if args.expires is not None:
        parts.append(args.expires)
    line = ":".join(parts)
    try:
        read_tokens([line])
    except ValueError as error:
        fail(f"a token is given as {error}")
    print(f"token    {token}\nsetting  {line}")
    print("Give the token to its user now: it is not stored anywhere. Add the setting to "
          "DULY_TOKENS of every node.", file=sys.stderr)  # fmt: skip
    return 0
