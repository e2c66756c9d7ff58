"""A real process whose fsync fails once, by a library that is loaded before the C library."""

from __future__ import annotations

import shutil
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

from broker.test_cli import command
from support.processes import Serve, Served, ended

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* As Linux reports a failed write-back: the first fsync of a file whose path has $FAIL_PART in it
   fails once the file $FAIL_ARMED is there, and all later ones succeed. They are noted. */
static int has_failed = 0;

int fsync(int descriptor) {
    int (*real)(int) = (int (*)(int)) dlsym(RTLD_NEXT, "fsync");
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    path[length < 0 ? 0 : length] = 0;
    const char *armed = getenv("FAIL_ARMED");
    if (has_failed && strstr(path, getenv("FAIL_DATA"))) {
        FILE *notes = fopen(getenv("FAIL_NOTES"), "a");
        fprintf(notes, "%s\n", path);
        fclose(notes);
    }
    if (!has_failed && strstr(path, getenv("FAIL_PART")) && access(armed, F_OK) == 0) {
        has_failed = 1;
        errno = EIO;
        return -1;
    }
    return real(descriptor);
}
"""
RECORDS = 3000
FLUSHING = ("--set", "log.initial.task.delay.ms=0", "--set", "log.flush.scheduler.interval.ms=50")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    folder = tmp_path_factory.mktemp("library")
    (folder / "fails.c").write_text(SOURCE)
    words = ["cc", "-shared", "-fPIC", "-o", "fails.so", "fails.c", "-ldl"]
    subprocess.run(words, cwd=folder, check=True)
    return folder / "fails.so"


def serve_failing(serve: Serve, library: Path, folder: Path, part: str, *words: str) -> Served:
    environment = {
        "LD_PRELOAD": str(library),
        "FAIL_PART": part,
        "FAIL_DATA": str(folder / "data"),
        "FAIL_ARMED": str(folder / "armed"),
        "FAIL_NOTES": str(folder / "notes"),
    }
    data = str(folder / "data")
    return serve("--port", "0", "--data-dir", data, *FLUSHING, *words, **environment)


def end(served: Served, folder: Path) -> str:
    """The one line that it ends with; nothing is synced after the failure."""
    code, out, err = ended(served.process)
    assert (code, out) == (1, "")
    assert not (folder / "notes").exists(), (folder / "notes").read_text()
    assert not (folder / "data" / ".kafka_cleanshutdown").exists()
    assert err.count("\n") == 1
    return err


def test_what_a_failed_fsync_lost_is_cut_off_and_reported(
    serve: Serve, library: Path, tmp_path: Path
) -> None:
    """The broker marked itself clean, and readers stopped at a hole with records behind it."""
    served = serve_failing(serve, library, tmp_path, "/t-0/00000000000000000000.log")
    bootstrap = ("-b", served.bootstrap)
    segments = ("--config", "segment.bytes=1048576", "--config", "flush.ms=86400000")
    assert command("topics", *bootstrap, "create", "t", *segments).returncode == 0
    lines = "".join(f"record-{number:06d}-{'x' * 100}\n" for number in range(RECORDS))
    assert command("produce", *bootstrap, "t", text=lines).returncode == 0
    (tmp_path / "armed").touch()
    rolling = "record-rolls-" + "x" * 800_000
    assert command("produce", *bootstrap, "t", text=rolling).returncode == 0
    log = tmp_path / "data" / "t-0" / "00000000000000000000.log"
    assert end(served, tmp_path) == (
        f"tidelog: broker 1 is gone: {log}: Input/output error; still running: none\n"
    )
    lost_from = log.stat().st_size // 2
    with log.open("r+b") as file:  # as the next read from the disk finds it
        file.seek(lost_from)
        file.write(bytes(4096))
    again = serve("--port", "0", "--data-dir", str(tmp_path / "data"))
    shown = command("consume", "-b", again.bootstrap, "t", "--from-beginning", "--until-end")
    numbers = [int(line.split("-")[1]) for line in shown.stdout.splitlines()]
    code, _, err = again.end(signal.SIGTERM)
    assert code == 0
    assert numbers == list(range(len(numbers)))
    assert 0 < len(numbers) < RECORDS
    assert f"the records from offset {len(numbers)} on are not whole" in err


@pytest.mark.parametrize(
    "part", ["__cluster_metadata-0/00000000000000000000.log", "/recovery-point-offset-checkpoint"]
)
def test_other_files_that_cannot_be_synced_end_the_broker_too(
    serve: Serve, part: str, library: Path, tmp_path: Path
) -> None:
    # A checkpoint's folder may be synced while another file fails: only those of the case.
    settings = ["replica.high.watermark.checkpoint.interval.ms=3600000"]
    if "checkpoint" in part:
        settings.append("log.flush.offset.checkpoint.interval.ms=50")
    options = [option for setting in settings for option in ("--set", setting)]
    served = serve_failing(serve, library, tmp_path, part, *options)
    (tmp_path / "armed").touch()
    command("topics", "-b", served.bootstrap, "create", "t")  # it may be gone already
    assert f"{part}: Input/output error" in end(served, tmp_path)


@pytest.mark.parametrize("isolated", [(), ("--isolated",)], ids=["together", "isolated"])
def test_one_of_three_brokers_ends_and_the_others_still_serve(
    serve: Serve, isolated: tuple[str, ...], library: Path, tmp_path: Path
) -> None:
    log = "broker-2/__cluster_metadata-0/00000000000000000000.log"
    words = ("--brokers", "3", "--log-level", "error", *isolated)
    served = serve_failing(serve, library, tmp_path, log, *words)
    servers = served.bootstrap.split(",")
    (tmp_path / "armed").touch()
    created = command("topics", "-b", servers[0], "create", "t")
    # A controller that ends before it answers leaves the topic, and the client's retry finds it.
    assert created.returncode == 0 or "TOPIC_ALREADY_EXISTS" in created.stderr, created.stderr
    assert served.process.stderr is not None
    assert served.process.stderr.readline() == (
        f"tidelog: broker 2 is gone: {tmp_path}/data/{log}: Input/output error;"
        " still running: 1, 3\n"
    )
    assert command("topics", "-b", servers[2], "create", "u").returncode == 0
    assert served.end(signal.SIGTERM) == (0, "", "")
    data = tmp_path / "data"
    marked = {path.parent.name for path in data.glob("*/.kafka_cleanshutdown")}
    assert marked == {"broker-1", "broker-3"}
    synced = (tmp_path / "notes").read_text() if (tmp_path / "notes").exists() else ""
    assert "/broker-2/" not in synced
