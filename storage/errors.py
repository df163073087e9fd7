"""What can go wrong with a store.

StoreError
├── StoreUnavailableError   no connection, or no answer within its limit; `in_doubt` if the
│                           statement may have taken effect
└── MigrationError          the schema is not what this version needs
"""


class StoreError(Exception):
    """Something is wrong with PostgreSQL or Redis."""


class StoreUnavailableError(StoreError):
    """The store did not answer in time, or not at all. Try again later.

    `in_doubt`: the statement had been sent, so it may have taken effect: read back by key.
    """

    def __init__(self, message: str, *, in_doubt: bool = False) -> None:
        super().__init__(message)
        self.in_doubt = in_doubt


class MigrationError(StoreError):
    """The schema cannot be brought to this version."""
