"""One broker's disk: logs, indexes, checkpoints. Synchronous; time comes as an argument.

All logs of a broker:
    manager.py            all logs: create, load, delete, move
    directory.py          one log directory: its lock, its owner, its checkpoint files
    folders.py            names of the folders of logs
    checkpoints.py        Kafka's small text files of offsets
    removals.py           files that are deleted after `file.delete.delay.ms`
    upkeep.py             periodic work over all logs, in parts

One log:
    log.py                offsets; append as leader or follower, read, truncate, retain, flush
    validator.py          checks a produced batch and sets the broker's fields
    inspection.py         looks at the records of a produced batch, within limits and in steps
    replicated.py         checks a leader's batches before a follower appends them
    epochs.py             the start offset of each leader epoch (KIP-101)
    producer_state.py     idempotent and transactional producers (KIP-98)
    producer_snapshot.py  the bytes of a producer snapshot
    flush.py              makes a log durable off the loop
    retention.py          when a segment is sealed, and which are deleted
    loading.py            what a log is loaded with, and what loading finds

Segments:
    segments.py           the ordered segments of a log
    segment.py            one segment: records and indexes
    indexes.py            offset, time and transaction index
    search.py             positions by offset or time
    reader.py             reads at an offset, fast where a reader continues
    slices.py             reads that end at a batch's end
    scan.py               walks over batches

Starts and damage:
    recovery.py           files to a log, after a clean or an unclean stop
    replay.py             batches to producer state
    holes.py              missing offsets inside a log
    epoch_checks.py       compares leader epochs with batches
    index_checks.py       compares indexes with records
    transaction_proof.py  compares transaction indexes with records
    scrub.py              finds bit rot
    scrub_repair.py       rewrites a damaged segment
    scrub_folders.py      checks a directory read-only

Rooms of their own:
    compaction/           keeps the newest record of each key
    remote/               the remote tier of a log (KIP-405)
    sealed.py             the files of a sealed segment that go to the remote tier

Settings, values and files:
    config.py             LogConfig, the settings of a topic
    config_key.py         how settings are declared
    base_error.py         the base of the errors that users catch
    config_rules.py       rules between settings
    types.py              values that other rooms share
    seams.py              FileSystem and File: the only way out of this room
    os_files.py           the real FileSystem
    guarded_files.py      a directory whose syncs fail after one failure
    open_files.py         bounds the open files
"""
