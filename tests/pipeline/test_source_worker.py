"""Between two tasks of a Python worker: Spark's archives are forgotten, the user's are not."""

from __future__ import annotations

import gc
import sys

from tidelog_pipeline.source_worker import spare_next_tasks


def test_sparks_archives_are_forgotten_and_old_objects_are_not_walked(monkeypatch) -> None:
    kept = {"/job/mine.zip": None, "/lib/py4j": None, "/lib/pyspark": None}
    sparks = {"/lib/pyspark.zip": None, "/lib/py4j-0.10.9.9-src.zip": None}
    monkeypatch.setattr(sys, "path_importer_cache", {**kept, **sparks})
    try:
        spare_next_tasks()
        frozen = gc.get_freeze_count()
        assert frozen
        spare_next_tasks()
        assert gc.get_freeze_count() <= frozen
    finally:
        gc.unfreeze()
    assert sys.path_importer_cache == kept
