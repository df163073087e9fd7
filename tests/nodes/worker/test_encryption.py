"""A worker's codec where handlers run in processes, where it fails, and in traces."""

from typing import Any

import cpu_handlers
import msgspec
from opentelemetry.trace import Status
from worker_rig import FakeNode, running

from duly.contrib.aes_siv import AesSiv
from duly.nodes.codec.envelope import opened, sealed_json
from duly.nodes.worker import Worker, outcomes, tracing

codec = AesSiv({"k": AesSiv.new_key()}, current="k")


class Broken:
    """Decodes, and cannot encode."""

    accepts_plain = False

    def encode(self, value: bytes, /) -> tuple[str, bytes]:
        raise RuntimeError(f"cannot encode {value!r}")

    def decode(self, key: str, data: bytes, /) -> bytes:
        return data


class Span:
    """Notes what it is told."""

    status = ""

    def set_attribute(self, name: str, value: str) -> None: ...

    def set_status(self, code: Any, text: str) -> None:
        self.status = Status(code, text).description or ""

    def end(self) -> None: ...


async def test_a_process_is_given_values_and_its_context_has_the_codec(node: FakeNode) -> None:
    worker = Worker(node.url, id="w1", processes=1, codec=codec)
    worker.task("where", process=True)(cpu_handlers.where)
    async with running(worker):
        await node.dispatch("where", sealed_json(codec, b'{"n":5}'))
        (report,) = await node.wait_reports(1)
    assert report.outcome == "completed"
    assert opened(codec, report.value)["n"] == 5


class Open:
    """Hides nothing, and authenticates nothing."""

    accepts_plain = False

    def encode(self, value: bytes, /) -> tuple[str, bytes]:
        return "k", value

    def decode(self, key: str, data: bytes, /) -> bytes:
        return data


async def test_no_payload_ends_the_worker(node: FakeNode) -> None:
    worker = Worker(node.url, id="w1", codec=Open())
    worker.task("echo")(lambda ctx, payload: payload)
    async with running(worker):
        await node.dispatch("echo", sealed_json(Open(), b"[" * 100_000 + b"]" * 100_000))
        (report,) = await node.wait_reports(1)
        assert report.outcome == "snoozed"
        await node.dispatch("echo", sealed_json(Open(), b"5"))
        (_, report) = await node.wait_reports(2)
    assert opened(Open(), report.value) == 5


def test_what_cannot_be_encrypted_is_not_told() -> None:
    for outcome in (
        outcomes.completed("secret", Broken()),
        outcomes.raised(ValueError("secret"), Broken()),
    ):
        assert outcome.kind == "failed"
        assert outcome.body is not None
        assert b"secret" not in outcome.body
        assert "cannot be encrypted: the codec raised RuntimeError" in str(outcome.body)


def test_a_result_that_is_no_json_is_told_to_whoever_has_the_key() -> None:
    outcome = outcomes.completed({"secret": float("nan")}, codec)
    error = msgspec.json.decode(outcome.body or b"")
    assert (outcome.kind, outcome.retry, error["type"]) == ("failed", False, "invalid_result")
    assert error.keys() == {"type", "$encrypted"}


def test_a_span_has_the_type_of_an_error_and_not_its_message() -> None:
    span = Span()
    tracing.end(span, outcomes.raised(ValueError("secret"), codec))
    assert span.status == "ValueError"
    tracing.end(span, outcomes.raised(ValueError("no secret")))
    assert span.status == "ValueError: no secret"
