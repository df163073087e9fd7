"""The base of what the SDK raises."""


class DulyError(Exception):
    """Base of all errors of the client, and of what cannot be decoded."""
