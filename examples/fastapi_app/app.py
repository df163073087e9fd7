"""Sign-ups, each with a welcome mail: FastAPI, data in your own PostgreSQL. Run it with `uvicorn app:app`."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
from fastapi import FastAPI, HTTPException, Request
from pydantic import BaseModel

import duly

TABLES = """
create table if not exists signups (
    id          bigint generated always as identity primary key,
    email       text not null unique,
    welcomed_at timestamptz
)
"""


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, Any]]:
    """Open one pool and one client for the life of the app: requests share their connections."""
    async with (
        asyncpg.create_pool(os.environ["DATABASE_URL"]) as pool,
        duly.Client(os.environ["DULY_URL"], os.environ.get("DULY_TOKEN")) as client,
    ):
        await pool.execute(TABLES)
        yield {"pool": pool, "duly": client}


app = FastAPI(lifespan=lifespan)


class SignUp(BaseModel):
    email: str


@app.post("/signups", status_code=201)
async def sign_up(new: SignUp, request: Request) -> dict[str, Any]:
    # First the row, then the task. Who gets an error asks again: the row is the same, and the key makes one task.
    number = await request.state.pool.fetchval(
        "insert into signups (email) values ($1) "
        "on conflict (email) do update set email = excluded.email returning id",
        new.email,
    )
    try:
        task = await request.state.duly.submit(
            "signup.welcome", {"signup": number}, idempotency_key=f"signup-{number}"
        )
    except (duly.Unreachable, duly.Unavailable) as error:
        raise HTTPException(503, "try again", {"Retry-After": "5"}) from error
    return {"id": number, "task": str(task.id)}


@app.get("/signups/{number}")
async def show(number: int, request: Request) -> dict[str, Any]:
    row = await request.state.pool.fetchrow(
        "select id, email, welcomed_at from signups where id = $1", number
    )
    if row is None:
        raise HTTPException(404, "no such sign-up")
    return dict(row)
