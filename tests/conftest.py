"""What holds for every test: hypothesis tries the same examples in each run, however long it takes.

A deadline would make the load of the machine a reason to fail, and so would the time that examples
take to be made.
"""

from __future__ import annotations

import gc

from hypothesis import HealthCheck, settings

pytest_plugins = ("support.processes", "support.remote_places")

settings.register_profile(
    "same",
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("same")


def pytest_collection_finish() -> None:
    """What thousands of tests are made of stays to the end: it is not gone through again and again
    for garbage."""
    gc.collect()
    gc.freeze()
