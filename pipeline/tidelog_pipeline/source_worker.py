"""What Spark does in a Python worker between two tasks, made cheap.

Before each task it invalidates the caches of imports, so Python reads the directories of Spark's
own archives again; after each task it collects garbage, so Python walks the objects of all modules.
Both cost more than the count of a split.
"""

from __future__ import annotations

import gc
import re
import sys
from functools import cache
from pathlib import PurePath

__all__ = ["spare_next_tasks"]


def spare_next_tasks() -> None:
    """Call it at the end of a task, when its modules are imported.

    The archives do not change while a worker runs. An import that needs them makes their entries
    again. Archives of the user stay: theirs may change.
    """
    for path in list(sys.path_importer_cache):
        if any(map(_is_sparks, PurePath(path).parts)):  # packages in an archive have entries, too
            sys.path_importer_cache.pop(path, None)
    _freeze_once()


@cache
def _freeze_once() -> None:
    """What is here after the first task stays as long as the worker."""
    gc.freeze()


def _is_sparks(name: str) -> bool:
    """PythonUtils.sparkPythonPath: archives of PySpark and Py4J, the jar of Spark's core."""
    return re.fullmatch(r"pyspark\.zip|py4j-.*-src\.zip|spark-core_.*\.jar", name) is not None
