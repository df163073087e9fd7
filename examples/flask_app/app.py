"""Sign-ups, each with a welcome mail: Flask, data in SQLite. Run it with `flask run`."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from flask import Flask, abort, request

import duly

TABLES = """
create table if not exists signups (
    id          integer primary key,
    email       text not null unique,
    welcomed_at text
)
"""


@contextmanager
def database() -> Iterator[sqlite3.Connection]:
    """A connection, for one transaction."""
    with (
        closing(sqlite3.connect(os.environ["DATABASE_FILE"], timeout=30)) as connection,
        connection,
    ):
        yield connection


app = Flask(__name__)
# One client for the process: threads share it, and requests its connections.
client = duly.SyncClient(os.environ["DULY_URL"], os.environ.get("DULY_TOKEN"))
with database() as connection:
    connection.execute(TABLES)


@app.post("/signups")
def sign_up() -> Any:
    body = request.get_json()
    email = body.get("email") if isinstance(body, dict) else None
    if not isinstance(email, str) or not email:
        abort(422, "email is missing")
    # First the row, then the task. Who gets an error asks again: the row is the same, and the key makes one task.
    with database() as connection:
        (number,) = connection.execute(
            "insert into signups (email) values (?) "
            "on conflict (email) do update set email = excluded.email returning id",
            [email],
        ).fetchone()
    try:
        task = client.submit(
            "signup.welcome", {"signup": number}, idempotency_key=f"signup-{number}"
        )
    except (duly.Unreachable, duly.Unavailable):
        return {"error": "try again"}, 503, {"Retry-After": "5"}
    return {"id": number, "task": str(task.id)}, 201


@app.get("/signups/<int:number>")
def show(number: int) -> Any:
    with database() as connection:
        row = connection.execute(
            "select id, email, welcomed_at from signups where id = ?", [number]
        ).fetchone()
    return dict(zip(("id", "email", "welcomed_at"), row, strict=True)) if row else abort(404)
