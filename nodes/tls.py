"""TLS of the API: a certificate and its key, read from files, and read again when they change."""

import ssl
from pathlib import Path

from duly.nodes.settings import Settings


class TlsError(Exception):
    """The certificate or its key cannot be used; the text says why."""


class Certificate:
    """What the API shows to its clients. New connections get what `refresh` found last."""

    def __init__(self, cert: Path, key: Path) -> None:
        """`cert`: PEM, the server's certificate first, then those that signed it. `key`: PEM, without
        a password. Raises TlsError."""
        self._cert = cert
        self._key = key
        self._seen = self._stamp()
        self.context = _context()
        self._use_in(self.context)

    def refresh(self) -> bool:
        """Read the files if they have changed; return whether they had.

        Raises TlsError, and keeps what there was, if they cannot be used: perhaps they are just being
        replaced.
        """
        stamp = self._stamp()
        if stamp == self._seen:
            return False
        # A failure may leave a context without a key, so another one goes first.
        for context in (_context(), self.context):
            self._use_in(context)
        self._seen = stamp
        return True

    def _stamp(self) -> list[tuple[int, int, int]]:
        try:
            stats = [path.stat() for path in (self._cert, self._key)]
        except OSError as error:
            raise TlsError(f"the certificate and its key cannot be read: {error}") from None
        return [(stat.st_mtime_ns, stat.st_size, stat.st_ino) for stat in stats]

    def _use_in(self, context: ssl.SSLContext) -> None:
        try:
            # A password is given so that none is asked for on the terminal.
            context.load_cert_chain(self._cert, self._key, password="")
        except (OSError, ValueError) as error:  # an SSLError is an OSError
            raise TlsError(
                f"{self._cert} and {self._key} are no certificate and its key: {error}"
            ) from None


def _context() -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


def certificate(settings: Settings) -> Certificate | None:
    """The certificate of the settings, None without one. Raises TlsError."""
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    return Certificate(Path(settings.tls_cert), Path(settings.tls_key))
