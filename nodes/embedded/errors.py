"""What can go wrong with the embedded servers; each message says what to do about it.

EmbeddedError
├── NotInstalledError   a program or package is missing, or the platform has none
├── FolderInUseError    another supervisor holds the data folder
└── StartError          a server did not come up
"""


class EmbeddedError(Exception):
    """The embedded servers cannot be used as asked."""


class NotInstalledError(EmbeddedError):
    """A program or package that the embedded servers need is missing."""


class FolderInUseError(EmbeddedError):
    """Another supervisor runs its servers in this data folder."""


class StartError(EmbeddedError):
    """A server did not come up; the message ends with the tail of its log."""
