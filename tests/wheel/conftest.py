"""Property tests here have no deadline: on a busy machine time says nothing about the code."""

from hypothesis import HealthCheck, settings

settings.register_profile("wheel", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("wheel")
