"""The JSON that stands for an encoded value: `{"$encrypted": {"key": "…", "data": "base64"}}`.

Of an error the type stays in clear, since the servers sort by it: `{"type": "ValueError", "$encrypted": {…}}`.
"""

from typing import Any, Final

import msgspec

from duly.nodes import exact_json
from duly.nodes.codec.codec import Codec
from duly.nodes.codec.errors import CodecError, NotEncrypted, Unreadable

MARK: Final = "$encrypted"

_BEGIN: Final = b'{"$encrypted":'
_VALUE: Final[exact_json.ExactDecoder[Any]] = exact_json.ExactDecoder()


class _Sealed(msgspec.Struct, forbid_unknown_fields=True):
    key: str
    data: bytes


class _Envelope(msgspec.Struct, forbid_unknown_fields=True):
    sealed: _Sealed = msgspec.field(name=MARK)


_envelope: Final = msgspec.json.Decoder(_Envelope)
_encode: Final = msgspec.json.encode


def is_sealed(data: bytes) -> bool:
    """Whether this JSON, as PostgreSQL or a client writes it, is an encoded value."""
    return data.startswith(_BEGIN)


def sealed(codec: Codec, value: object) -> dict[str, Any]:
    """The envelope of a value; raises CodecError, TypeError or ValueError for what is not JSON."""
    return {MARK: _seal(codec, exact_json.encode_sorted(value))}


def sealed_json(codec: Codec, data: bytes) -> bytes:
    """The same for JSON. Raises CodecError."""
    return _encode({MARK: _seal(codec, data)})


def sealed_error(codec: Codec, kind: str, rest: dict[str, str]) -> bytes:
    """An error, of which only the type is seen. Raises CodecError."""
    return _encode({"type": kind, MARK: _seal(codec, _encode(rest))})


def opened_json(codec: Codec | None, data: bytes) -> bytes:
    """The JSON that was encoded; raises CodecError."""
    if codec is None:
        raise CodecError("encrypted, and there is no codec")
    if not is_sealed(data):
        if codec.accepts_plain:
            return data
        raise NotEncrypted("not encrypted")
    try:
        envelope = _envelope.decode(data)
    except msgspec.DecodeError as error:
        raise CodecError(f"not a well-formed envelope: {error}") from None
    return _open(codec, envelope.sealed)


def opened(codec: Codec, value: Any) -> Any:
    """The value that was encoded, or what refuses to be used as one; None stays None."""
    if value is None:
        return None
    try:
        if not (isinstance(value, dict) and MARK in value):
            if codec.accepts_plain:
                return value
            raise NotEncrypted("not encrypted")
        return _value(_open(codec, _converted(value)))
    except CodecError as error:
        return Unreadable(error)


def opened_error(codec: Codec, value: Any) -> Any:
    """An error as it was before; one that a node wrote is plain, and stays as it is. Raises CodecError."""
    if not (isinstance(value, dict) and MARK in value):
        return value
    rest = _value(_open(codec, _converted({MARK: value[MARK]})))
    if not isinstance(rest, dict):
        raise CodecError("what was encoded is not an error")
    return {**_plain(value), **rest}


def shown_error(codec: Codec, value: Any) -> Any:
    """The same for whoever looks on: its message may be what refuses to be used as one."""
    try:
        return opened_error(codec, value)
    except CodecError as error:
        return {**_plain(value), "message": Unreadable(error)}


def _plain(error: dict[str, Any]) -> dict[str, Any]:
    return {name: part for name, part in error.items() if name != MARK}


def _seal(codec: Codec, data: bytes) -> dict[str, Any]:
    try:
        key, made = codec.encode(data)
    except CodecError:
        raise
    except Exception as error:
        raise CodecError(f"the codec raised {type(error).__qualname__}") from error
    # Anything else would be written as well, and nobody could decode it.
    if not (isinstance(key, str) and isinstance(made, bytes)):
        raise CodecError("the codec's encode has to return a str and bytes")
    return {"key": key, "data": made}


def _open(codec: Codec, what: _Sealed) -> bytes:
    """Raises CodecError, also for what is no JSON, so that whoever is given the value can rely on that."""
    try:
        data = codec.decode(what.key, what.data)
    except CodecError:
        raise
    except Exception as error:
        raise CodecError(f"the codec raised {type(error).__qualname__}") from error
    try:
        msgspec.json.decode(data, type=msgspec.Raw)
    except (msgspec.DecodeError, TypeError, RecursionError):
        raise CodecError("what was encoded is not JSON") from None
    return data


def _value(data: bytes) -> Any:
    """Raises CodecError for what only looks like JSON: text that is not UTF-8, a number out of all range."""
    try:
        return _VALUE.decode(data)
    except msgspec.DecodeError:
        raise CodecError("what was encoded is not JSON") from None


def _converted(value: dict[str, Any]) -> _Sealed:
    try:
        return msgspec.convert(value, _Envelope).sealed
    except msgspec.ValidationError as error:
        raise CodecError(f"not a well-formed envelope: {error}") from None
