"""Settings shared by all tests: Hypothesis profiles, chosen by HYPOTHESIS_PROFILE."""

import os

from hypothesis import HealthCheck, settings

_COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("fast", max_examples=60, derandomize=True, **_COMMON)
settings.register_profile("deep", max_examples=5000, **_COMMON)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))
