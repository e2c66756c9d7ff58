"""What holds for every test: hypothesis tries the same examples in each run, however long it takes.

A deadline would make the load of the machine a reason to fail.
"""

from __future__ import annotations

from hypothesis import settings

pytest_plugins = ("support.remote_places",)

settings.register_profile("same", derandomize=True, database=None, deadline=None)
settings.load_profile("same")
