"""A spike on a real node and workers, a tiny one."""

from datetime import timedelta

import pytest
from benchmarks import spike


async def test_a_spike_is_measured(
    fresh_database: str, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spike, "_SPIKE", timedelta(seconds=1))
    monkeypatch.setattr(spike, "_EVERY_S", 0.2)

    figures = await spike.measure(fresh_database, redis_url, 200, lead_s=3, drain_s=60)

    assert figures["started"] == figures["tasks"] == 200
    assert figures["started early"] == 0
    assert 0 <= figures["overtaken p50, s"] <= figures["overtaken most, s"]
    assert 0 < figures["most MB until the first was due"] <= figures["most MB"]
