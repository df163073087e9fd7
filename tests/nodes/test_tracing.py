"""Spans go to the collector that the environment names."""

import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

_PROGRAM = """
from duly.nodes import tracing
from duly.storage import trace_context
tracing.configure("duly-node")
trace_context.tracer().start_span("a span of this test").end()
"""


class Collector(HTTPServer):
    """Keeps what it is sent."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Take)
        self.bodies: list[bytes] = []


class _Take(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Collector)
        self.server.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[Collector]:
    server = Collector()
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def run(**environ: str) -> str:
    done = subprocess.run(
        [sys.executable, "-P", "-c", _PROGRAM],
        env=environ, check=True, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    return done.stderr


def test_a_collector_that_is_named_gets_the_spans(collector: Collector) -> None:
    url = f"http://127.0.0.1:{collector.server_port}"
    run(OTEL_EXPORTER_OTLP_ENDPOINT=url, OTEL_EXPORTER_OTLP_COMPRESSION="none")
    (body,) = collector.bodies
    assert b"a span of this test" in body
    assert b"duly-node" in body


def test_the_name_of_the_service_can_be_set(collector: Collector) -> None:
    url = f"http://127.0.0.1:{collector.server_port}/v1/traces"
    run(OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=url, OTEL_SERVICE_NAME="my tasks")
    assert b"my tasks" in collector.bodies[0]


def test_without_a_collector_nothing_is_set_up() -> None:
    assert run() == ""
