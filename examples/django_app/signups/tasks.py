"""The handlers. `python manage.py duly_worker` runs them."""

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

from django.conf import settings
from django.db import close_old_connections, connection, transaction
from django.utils import timezone

import duly
from signups.models import SignUp

worker = duly.Worker(settings.DULY_REDIS_URL)
R = TypeVar("R")


def task(name: str) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Register a handler. As around a request, connections of its thread that are too old or broken are closed."""

    def register(handler: Callable[..., R]) -> Callable[..., R]:
        @worker.task(name)
        @wraps(handler)
        def run(*arguments: object) -> R:
            close_old_connections()
            try:
                return handler(*arguments)
            finally:
                close_old_connections()

        return handler

    return register


@task("signup.welcome")
def welcome(ctx: duly.Context, payload: dict[str, str]) -> str:
    email = payload["email"]
    # Your mail goes out here. An attempt may be the second one: pass ctx.headers()["Idempotency-Key"] on.
    print(f"welcome, {email}", flush=True)
    with transaction.atomic():
        SignUp.objects.filter(email=email).update(welcomed_at=timezone.now())
        # That it was welcomed and that the task is done are one commit, too.
        ctx.complete_in_sync(connection.connection, f"welcomed {email}")
    return f"welcomed {email}"
