"""Signals that come while something must not be left half done."""

import signal
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from duly.nodes.declared.applying import Applying
from duly.nodes.declared.interrupts import put_off
from duly.nodes.declared.planning import Step


class ToldError(Exception):
    """SIGTERM came."""


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Both signals raise, as they are in a command and in its test."""

    def tell(*_: Any) -> None:
        raise ToldError

    before = (
        signal.signal(signal.SIGTERM, tell),
        signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    yield
    signal.signal(signal.SIGTERM, before[0])
    signal.signal(signal.SIGINT, before[1])


@pytest.mark.parametrize(
    ("number", "raised"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, ToldError)]
)
def test_a_task_that_is_replaced_is_submitted_anew_before_an_interrupt_ends_it(
    number: signal.Signals, raised: type[BaseException]
) -> None:
    done: list[str] = []

    def cancel(_: object) -> None:
        signal.raise_signal(number)  # the cancel is under way
        done.append("cancelled")

    client = SimpleNamespace(cancel=cancel, submit=lambda **_: done.append("submitted"))
    one = SimpleNamespace(
        kind="replace", name="a", declared=SimpleNamespace(body={}), live=SimpleNamespace(id=1)
    )
    applying = Applying(
        cast(Any, client), cast(Any, None), take_over=False, replace=True, wait_s=1.0
    )
    with pytest.raises(raised):
        applying.carry_out(cast(Step, one))
    assert done == ["cancelled", "submitted"]


def test_without_a_signal_the_handlers_are_as_before() -> None:
    with put_off():
        pass
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_in_another_thread_it_does_nothing() -> None:
    done: list[str] = []

    def work() -> None:
        with put_off():
            done.append("worked")

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(30)
    assert done == ["worked"]
