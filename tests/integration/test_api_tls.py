"""The API over TLS: with a certificate of an own authority, replaced while the node runs."""

import asyncio
import logging
import socket
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import anyio.to_thread
import pytest
import trustme
from cryptography.hazmat.primitives import serialization as pem
from node_rig import RunningNode, running_node
from waiting import wait_for

from duly.nodes import server
from duly.nodes.tls import Certificate, TlsError


class Files:
    """A certificate authority, and the files that it wrote last."""

    def __init__(self, folder: Path) -> None:
        self.cert, self.key, self.authority = (folder / f"{name}.pem" for name in "ckA")
        self._ca = trustme.CA()
        self._ca.cert_pem.write_to_path(self.authority)
        self.issue()

    def issue(self) -> None:
        """A new certificate for this machine."""
        issued = self._ca.issue_cert("127.0.0.1", "localhost")
        self.cert.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        self.key.write_bytes(issued.private_key_pem.bytes())

    @property
    def settings(self) -> dict[str, Any]:
        return {"tls_cert": str(self.cert), "tls_key": str(self.key)}

    @property
    def trust(self) -> ssl.SSLContext:
        """What a client needs to know of the authority."""
        return ssl.create_default_context(cafile=self.authority)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


async def test_the_api_is_https_alone(fresh_database: str, redis_url: str, files: Files) -> None:
    async with running_node(fresh_database, redis_url, **files.settings) as node:
        assert node.url.startswith("https://127.0.0.1:")
        async with aiohttp.ClientSession(node.url) as http:
            async with http.post("/v1/tasks", json={"type": "a"}, ssl=files.trust) as answer:
                assert answer.status == 201
            with pytest.raises(aiohttp.ClientConnectorCertificateError):
                await http.get("/healthz")  # it is not the authority that this one trusts
            with pytest.raises(aiohttp.ClientError):
                await http.get(node.url.replace("https", "http") + "/healthz")
            async with http.get("/healthz", ssl=files.trust) as answer:
                assert answer.status == 200


async def test_the_command_line_speaks_it_too(
    fresh_database: str, redis_url: str, files: Files
) -> None:
    async with running_node(fresh_database, redis_url, **files.settings) as node:
        url = node.url.replace("127.0.0.1", "localhost")
        argv = [sys.executable, "-P", "-m", "duly", "submit", "a", "--url", url, "-q"]

        def submit(**more: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                argv, env=more, capture_output=True, text=True, timeout=60, check=False
            )

        done = await anyio.to_thread.run_sync(lambda: submit(SSL_CERT_FILE=str(files.authority)))
        assert (done.returncode, done.stderr) == (0, "")
        assert await node.count() == 1
        refused = await anyio.to_thread.run_sync(submit)
        assert refused.returncode == 1
        assert "certificate" in refused.stderr


async def test_c48_who_begins_no_handshake_is_ended(
    fresh_database: str, redis_url: str, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_HANDSHAKE_S", 1.0)
    async with running_node(fresh_database, redis_url, **files.settings) as node:
        parts = urlsplit(node.url)
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        assert await asyncio.wait_for(reader.read(), 30) == b""  # without a limit it is 60 s
        writer.close()


async def test_a_new_certificate_is_taken_up(
    fresh_database: str, redis_url: str, files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    connector = aiohttp.TCPConnector(ssl=files.trust)
    async with (
        running_node(fresh_database, redis_url, **files.settings) as node,
        aiohttp.ClientSession(node.url, connector=connector) as http,
    ):
        await http.get("/healthz")
        first = await _shown(node)
        old_key = files.key.read_bytes()
        files.issue()
        new_key = files.key.read_bytes()
        files.key.write_bytes(old_key)  # the new certificate is there, its key not yet
        await wait_for(lambda: "certificate anew fails" in caplog.text, 30, "it is noticed")
        assert await _shown(node) == first
        files.key.write_bytes(new_key)

        async def is_new() -> bool:
            return await _shown(node) != first

        await wait_for(is_new, 30, "new connections get the new certificate")
        async with http.get("/healthz") as answer:  # over the connection that there is
            assert answer.status == 200
    assert caplog.text.count("certificate anew fails") == 1


async def _shown(node: RunningNode) -> bytes:
    """The certificate that a new connection gets."""
    parts = urlsplit(node.url)

    def look() -> bytes:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with (
            socket.create_connection((parts.hostname, parts.port), timeout=30) as plain,
            context.wrap_socket(plain) as wrapped,
        ):
            return wrapped.getpeercert(binary_form=True) or b""

    return await anyio.to_thread.run_sync(look)


def test_files_that_are_no_certificate_and_key_are_named(files: Files, tmp_path: Path) -> None:
    assert Certificate(files.cert, files.key).refresh() is False
    with pytest.raises(TlsError, match=r"cannot be read: .*missing"):
        Certificate(files.cert, tmp_path / "missing.pem")
    for cert, key in ((files.key, files.key), (files.cert, files.authority)):
        with pytest.raises(TlsError, match="are no certificate and its key"):
            Certificate(cert, key)
    with pytest.raises(TlsError, match="are no certificate and its key"):
        Certificate(files.cert, _locked(files.key))


def _locked(key: Path) -> Path:
    """The key under a password, for which nobody shall be asked."""
    plain = pem.load_pem_private_key(key.read_bytes(), None)
    secret = pem.BestAvailableEncryption(b"hush")
    form = (pem.Encoding.PEM, pem.PrivateFormat.PKCS8, secret)
    path = key.with_name("locked.pem")
    path.write_bytes(plain.private_bytes(*form))
    return path


async def test_a_node_with_a_wrong_certificate_does_not_start(
    fresh_database: str, redis_url: str, files: Files
) -> None:
    environ = {"DULY_DATABASE_URL": fresh_database, "DULY_REDIS_URL": redis_url, "DULY_PORT": "0"}
    environ |= {"DULY_TLS_CERT": str(files.cert), "DULY_TLS_KEY": str(files.authority)}
    argv = [sys.executable, "-P", "-m", "duly", "node"]
    done = await anyio.to_thread.run_sync(
        lambda: subprocess.run(
            argv, env=environ, capture_output=True, text=True, timeout=60, check=False
        )
    )
    assert done.returncode == 1
    assert done.stderr.startswith("duly: ")
    assert "are no certificate and its key" in done.stderr
    assert len(done.stderr.splitlines()) == 1
