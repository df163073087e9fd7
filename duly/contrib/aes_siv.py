"""A codec that encrypts with AES-SIV (RFC 5297): equal values are equal when encrypted, and nothing else shows.

Needs `pip install "duly[encryption]"`.
"""

from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

from duly.nodes.codec import Tampered, UnknownKey

KEY_BYTES: Final = 64
"""AES-256 for both halves of a key (RFC 5297, section 2.2)."""

_KEY_ID_MAX: Final = 64
_DOMAIN: Final = b"duly 1"


class AesSiv:
    """Encrypts and authenticates values with one key, and decrypts what was encrypted with any of several.

        codec = AesSiv({"2026-11": new, "2026-05": old}, current="2026-11")

    It is deterministic, since a repeated submission must be the same: whoever sees two encrypted values sees whether they
    are equal, and how long they are.
    """

    def __init__(
        self, keys: Mapping[str, bytes | str], *, current: str, accepts_plain: bool = False
    ) -> None:
        """`keys`: each by its id, which everybody may see (1 to 64 characters): 64 bytes, or these in base64.

        `current`: the id of the key to encrypt with. `accepts_plain`: take values that are not encrypted, too, while
        what was submitted before goes by. Raises ValueError for a key of another length, an id that is too long, or a
        `current` that is not among the keys.
        """
        if current not in keys:
            raise ValueError(f"there is no key {current!r}")
        self._keys = {_checked(key_id): _bytes(key_id, key) for key_id, key in keys.items()}
        self._ciphers = {key_id: AESSIV(key) for key_id, key in self._keys.items()}
        self._current = current
        self.accepts_plain: Final = accepts_plain

    @staticmethod
    def new_key() -> str:
        """Return a new key in base64, made by chance."""
        return b64encode(AESSIV.generate_key(KEY_BYTES * 8)).decode()

    def encode(self, value: bytes, /) -> tuple[str, bytes]:
        """Encrypt with the current key."""
        return self._current, self._ciphers[self._current].encrypt(value, _about(self._current))

    def decode(self, key: str, data: bytes, /) -> bytes:
        """Decrypt with the key of that id. Raises UnknownKey or Tampered."""
        cipher = self._ciphers.get(key)
        if cipher is None:
            raise UnknownKey(key)
        try:
            return cipher.decrypt(data, _about(key))
        except InvalidTag:
            raise Tampered(f"altered, or encrypted with another key {key!r}") from None

    def __reduce__(self) -> tuple[Any, ...]:
        """For handlers in processes of their own."""
        return _made, (self._keys, self._current, self.accepts_plain)

    def __repr__(self) -> str:
        return f"<AesSiv current={self._current!r} keys={sorted(self._keys)}>"


def _made(keys: dict[str, bytes], current: str, accepts_plain: bool) -> AesSiv:
    return AesSiv(keys, current=current, accepts_plain=accepts_plain)


def _about(key_id: str) -> list[bytes]:
    """What is authenticated along with the value."""
    return [_DOMAIN, key_id.encode()]


def _checked(key_id: str) -> str:
    if not 1 <= len(key_id) <= _KEY_ID_MAX:
        raise ValueError(f"the id of a key has 1 to {_KEY_ID_MAX} characters: {key_id!r}")
    return key_id


def _bytes(key_id: str, key: bytes | str) -> bytes:
    try:
        made = b64decode(key, validate=True) if isinstance(key, str) else key
    except ValueError:
        raise ValueError(f"key {key_id!r} is not base64") from None
    if len(made) != KEY_BYTES:
        raise ValueError(f"key {key_id!r} has {len(made)} bytes, not {KEY_BYTES}")
    return made
