"""Between two tasks of a Python worker: Spark's archives are forgotten, the user's are not."""

from __future__ import annotations

import gc
import sys

from tidelog_pipeline import source_worker


def test_sparks_archives_are_forgotten_and_old_objects_are_not_walked(monkeypatch) -> None:
    kept = {"/job/mine.zip": None, "/lib/py4j": None, "/lib/pyspark": None, "/job/my.jar": None}
    sparks = ["/lib/pyspark.zip", "/lib/py4j-0.10.9.9-src.zip", "/jars/spark-core_2.13-4.0.5.jar"]
    sparks += ["/lib/pyspark.zip/pyspark/sql", "/lib/py4j-0.10.9.9-src.zip/py4j"]  # of packages
    freezes = []
    monkeypatch.setattr(gc, "freeze", lambda: freezes.append(1))
    monkeypatch.setattr(sys, "path_importer_cache", {**kept, **dict.fromkeys(sparks)})
    source_worker._freeze_once.cache_clear()
    source_worker.spare_next_tasks()
    source_worker.spare_next_tasks()
    assert sys.path_importer_cache == kept
    assert len(freezes) == 1
