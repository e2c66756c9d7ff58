"""What holds for every test: hypothesis tries the same examples in each run, however long it takes.

A deadline would make the load of the machine a reason to fail, and so would the time that examples
take to be made.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings

pytest_plugins = ("support.remote_places",)

settings.register_profile(
    "same",
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("same")
