"""Why something cannot be read.

DulyError
└── CodecError        no codec, a codec that failed, or JSON that is none
    ├── UnknownKey    its key is not here
    ├── Tampered      altered, or encoded with another key of the same id
    └── NotEncrypted  plain, where only encoded values are taken
"""

# ruff: noqa: N818 - these names are statements

from typing import Final, NoReturn

from duly.nodes.errors import DulyError


class CodecError(DulyError):
    """A value cannot be encoded or decoded. Its text tells nothing of the value."""


class UnknownKey(CodecError):
    """It was encoded with a key that this codec does not have."""

    def __init__(self, key: str) -> None:
        super().__init__(f"encrypted with key {key[:100]!r}, which is not here")
        self.key: Final = key

    def __reduce__(self) -> tuple[type["UnknownKey"], tuple[str]]:
        return type(self), (self.key,)


class Tampered(CodecError):
    """It was altered, or encoded with another key of the same id."""


class NotEncrypted(CodecError):
    """It is plain, and the codec does not accept that."""


class Unreadable:
    """In the place of a value of a `Task` or `Run` that cannot be decoded, so that the rest can be looked at.

    Whoever uses it as the value gets the error raised.
    """

    __slots__ = ("error",)

    def __init__(self, error: CodecError) -> None:
        self.error = error
        """Why."""

    def __repr__(self) -> str:
        return f"<Unreadable: {self.error}>"

    def _refuse(self, *_: object) -> NoReturn:
        raise self.error

    __bool__ = __contains__ = __getitem__ = __iter__ = __len__ = _refuse
    __float__ = __int__ = _refuse
    get = items = keys = values = _refuse
