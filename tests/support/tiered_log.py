"""One tiered log of a broker, over its lives."""

from __future__ import annotations

from support.logs import NOW, PARTITION, append, config
from tidelog.simulation.disk import SimDisk
from tidelog_storage.manager import LogManager

ID = bytes(range(16))
LOCAL = {"internal_segment_bytes": 500, "local_retention_bytes": 1, "file_delete_delay_ms": 100}
PLAIN = config(internal_segment_bytes=500)
TIERED = config(remote_storage_enable=True, **LOCAL)
NO_COPY = config(remote_storage_enable=True, remote_log_copy_disable=True, **LOCAL)


class Broker:
    """What the broker does with one tiered log, over its lives."""

    def __init__(self, disk=None, *, enable=True):
        self.disk = disk or SimDisk(0)
        self.enable = enable
        self.start()

    def start(self):
        self.disk.on_death = self.disk.kill
        self.disk.unwinding = False
        self.files = self.disk.files()
        self.logs = LogManager(
            self.files, ["data"], PLAIN, remote_storage_system_enable=self.enable
        )
        self.logs.open(now_ms=NOW, cluster_id="c", node_id=1, new_directory_id=lambda: b"d" * 16)

    def create(self, batches=0, settings=TIERED):
        log = self.logs.create(PARTITION, ID, settings)
        for number in range(batches):
            append(log, 2, leader_epoch=number // 4, producer_id=7 + number // 4,
                   producer_epoch=0, base_sequence=2 * (number % 4))  # fmt: skip
        return log

    def reopen(self, settings=TIERED):
        self.start()
        log = self.logs.get(PARTITION)
        if log is None:  # a power failure may take a log that was never written to
            return self.create(settings=settings)
        log.config = settings
        return log

    def restart(self, settings=TIERED):
        self.logs.shutdown(NOW)
        return self.reopen(settings)

    def crash(self, settings=TIERED, *, power=False):
        self.disk.power_failure() if power else self.disk.kill()
        return self.reopen(settings)


def copied(log, up_to):
    """Copied up to, inclusive, and gone locally as far as retention lets it."""
    log.set_highest_remote_offset(up_to)
    return log.delete_old_segments(NOW)


def starts(log):
    return log.log_start_offset, log.local_log_start_offset
