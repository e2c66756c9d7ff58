"""A disk that fails on command: a library that is built here and loaded before libc.

An order is a file that names a folder. While `fsync-fails` is there, the next fsync of a file in
that folder fails with EIO, once (the library removes the order). While `full` is there, writes to
files in that folder fail with ENOSPC.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

/* Whether an order is there for the folder that this file lies in. */
static int ordered(const char *order, int file, char *path) {
    int saved = errno, found = 0;
    char folder[4096], link[64];
    snprintf(path, 4096, "%s/%s", getenv("BAD_DISK_ORDERS"), order);
    int orders = open(path, O_RDONLY | O_CLOEXEC);
    if (orders >= 0) {
        ssize_t length = read(orders, folder, sizeof folder - 1);
        close(orders);
        folder[length < 0 ? 0 : length] = 0;
        char name[4096];
        snprintf(link, sizeof link, "/proc/self/fd/%d", file);
        length = readlink(link, name, sizeof name - 1);
        name[length < 0 ? 0 : length] = 0;
        found = length > 0 && *folder && strncmp(name, folder, strlen(folder)) == 0;
    }
    errno = saved;
    return found;
}

#define REAL(name) ((__typeof__(&name)) dlsym(RTLD_NEXT, #name))

static int fails_to_sync(int file) {
    char path[4096];
    return ordered("fsync-fails", file, path) && unlink(path) == 0;
}
int fsync(int file) {
    if (fails_to_sync(file)) { errno = EIO; return -1; }
    return REAL(fsync)(file);
}
int fdatasync(int file) {
    if (fails_to_sync(file)) { errno = EIO; return -1; }
    return REAL(fdatasync)(file);
}

#define FULL(file) char path[4096]; if (ordered("full", file, path)) { errno = ENOSPC; return -1; }
ssize_t write(int file, const void *data, size_t size) {
    FULL(file) return REAL(write)(file, data, size);
}
ssize_t writev(int file, const struct iovec *parts, int count) {
    FULL(file) return REAL(writev)(file, parts, count);
}
ssize_t pwrite64(int file, const void *data, size_t size, off64_t at) {
    FULL(file) return REAL(pwrite64)(file, data, size, at);
}
ssize_t pwritev64(int file, const struct iovec *parts, int count, off64_t at) {
    FULL(file) return REAL(pwritev64)(file, parts, count, at);
}
"""


class BadDisk:
    """The library, in the environment of what is started meanwhile, and its orders."""

    def __init__(self, folder: Path) -> None:
        self._orders = folder / "orders"
        self._orders.mkdir()
        source, self._library = folder / "bad_disk.c", folder / "bad_disk.so"
        source.write_text(SOURCE)
        command = ["cc", "-shared", "-fPIC", "-o", str(self._library), str(source), "-ldl"]
        subprocess.run(command, check=True)

    @staticmethod
    def can_be_built() -> bool:
        """Whether there is a C compiler."""
        return shutil.which("cc") is not None

    @contextmanager
    def for_children(self) -> Iterator[None]:
        """What is started meanwhile has this disk."""
        names = {"LD_PRELOAD": str(self._library), "BAD_DISK_ORDERS": str(self._orders)}
        os.environ.update(names)
        try:
            yield
        finally:
            for name in names:
                del os.environ[name]

    def order(self, kind: str, folder: Path) -> None:
        """Let `full` or `fsync-fails` happen to the files in a folder."""
        made = self._orders / "new"
        made.write_text(str(folder))
        made.rename(self._orders / kind)

    def is_ordered(self, kind: str) -> bool:
        """Whether an order is still there."""
        return (self._orders / kind).exists()

    def heal(self) -> None:
        """Take all orders back."""
        for kind in ("full", "fsync-fails"):
            (self._orders / kind).unlink(missing_ok=True)
