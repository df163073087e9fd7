"""Runs of the conformance kit against the example workers and others, a few at a time: it mostly waits."""

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from duly.nodes.embedded.process import end_with_parent

EXAMPLES = Path(__file__).parents[2] / "examples" / "workers"

WORKERS: dict[str, list[str]] = {
    "python": [sys.executable, str(EXAMPLES / "worker.py")],
    "javascript": ["node", str(EXAMPLES / "worker.js")],
    "shell": ["sh", str(EXAMPLES / "worker.sh")],
}
"""How the example in each language is started."""

_AT_ONCE = 6


class Run(NamedTuple):
    """What the kit said, and its exit code."""

    code: int
    said: dict[str, Any]
    errors: str

    @property
    def failed(self) -> dict[str, str]:
        """Number and reason of each rule that was broken."""
        return {r["number"]: r["detail"] for r in self.said["rules"] if r["verdict"] == "fail"}

    @property
    def passed(self) -> set[str]:
        """Numbers of the rules that are kept."""
        return {r["number"] for r in self.said["rules"] if r["verdict"] == "pass"}


async def conformance(*words: str) -> Run:
    """`duly conformance --json` with these words."""
    kit = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "duly", "conformance", "--json"), *words,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        preexec_fn=end_with_parent(),
    )  # fmt: skip
    said, errors = await kit.communicate()
    assert kit.returncode is not None
    text = errors.decode(errors="replace")
    return Run(kit.returncode, json.loads(said) if said else {"rules": []}, text)


async def several(runs: Mapping[str, Sequence[str]]) -> dict[str, Run]:
    """Several of them, by name, a few at a time."""
    room = asyncio.Semaphore(_AT_ONCE)

    async def one(words: Sequence[str]) -> Run:
        async with room:
            return await conformance(*words)

    done = await asyncio.gather(*map(one, runs.values()))
    return dict(zip(runs, done, strict=True))
