"""A folder of any file system that Spark knows (a disk, HDFS, S3), by Hadoop's own classes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

__all__ = ["Folder", "is_surely_missing"]

_DEFAULT = "spark.hadoop.fs.defaultFS"
_OF_FILES = ("HADOOP_CONF_DIR", "SPARK_CONF_DIR", "SPARK_HOME")  # files there may set it, too


def is_surely_missing(place: str, master: str, settings: Mapping[str, str]) -> bool:
    """Whether it is known without Spark that there is no such folder: it would be on this machine's
    disk, and is not."""
    scheme, colon, rest = place.partition(":")
    if colon and "/" not in scheme:
        return scheme == "file" and not Path("/" + rest.lstrip("/")).exists()
    is_local = settings.get("spark.master", master).startswith("local")
    is_told = _DEFAULT in settings or any(map(os.environ.get, _OF_FILES))
    return is_local and not is_told and not Path(place).exists()


class Folder:
    """Names are relative to the folder. Errors of the file system are Py4J's."""

    def __init__(self, spark: SparkSession, place: str) -> None:
        context: Any = spark.sparkContext
        self._jvm = context._jvm
        path = self._jvm.org.apache.hadoop.fs.Path(place)
        self._files = path.getFileSystem(context._jsc.hadoopConfiguration())
        self._path = self._files.makeQualified(path)

    def place(self, name: str = "") -> str:
        """The whole path of a name, or of the folder itself."""
        return str(self._of(name).toString())

    def names(self, name: str = "") -> list[str]:
        """What is in it, in order; nothing if it is not there."""
        path = self._of(name)
        if not self._files.exists(path):
            return []
        return sorted(each.getPath().getName() for each in self._files.listStatus(path))

    def is_file(self) -> bool:
        """Whether the place is a file, so no folder can be there."""
        return bool(
            self._files.exists(self._path) and self._files.getFileStatus(self._path).isFile()
        )

    def all_files(self, name: str) -> list[str]:
        """The files below a name, relative to it, in order."""
        root = self.place(name) + "/"
        found, listed = [], self._files.listFiles(self._of(name), True)
        while listed.hasNext():
            found.append(str(listed.next().getPath().toString()).removeprefix(root))
        return sorted(found)

    def read(self, name: str) -> str:
        """A small file's text."""
        stream = self._files.open(self._of(name))
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, name: str, text: str) -> None:
        """Create a small file that is there whole or not at all."""
        fresh = f"{name}.new"
        stream = self._files.create(self._of(fresh), True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        self.move(fresh, name)

    def move(self, name: str, target: str) -> None:
        """Rename a file; FileExistsError if the file system refuses."""
        path = self._of(target)
        self._files.mkdirs(path.getParent())
        if not self._files.rename(self._of(name), path):
            raise FileExistsError(f"{self.place(name)} can't be renamed to {self.place(target)}")

    def exists(self, name: str) -> bool:
        """Whether a file or folder is there."""
        return bool(self._files.exists(self._of(name)))

    def delete(self, name: str) -> None:
        """Delete a file, or a folder with all in it."""
        self._files.delete(self._of(name), True)

    def _of(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._path, name) if name else self._path
