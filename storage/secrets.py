"""What the nodes of one cluster share and nobody else may know."""

from duly.storage.database import Database


async def get(db: Database, name: str) -> str:
    """The secret of this name, which a migration has made. Raises LookupError if there is none."""
    rows = await db.fetch("secret", name)
    if not rows:
        raise LookupError(f"there is no secret {name} in the table secrets")
    value: str = rows[0]["value"]
    return value
