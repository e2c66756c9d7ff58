"""Compaction: keep the newest record of each key of a log (KIP-58, KIP-98, KIP-280, KIP-534).

    plan.py          chooses log, end offset and groups of segments: pure
    offset_map.py    key -> newest offset, within a bounded memory
    transactions.py  which batches and markers of transactions to drop
    batch_filter.py  filters the records of one batch
    rewriting.py     one pass over a log in small steps, run off the loop, on frozen values
    swap.py          replaces old files by compacted ones, also after a crash
    cleaner.py       the passes over all logs of a manager: begin, advance, finish

Batches keep their offsets, producers, sequences, epochs and codecs; gaps between offsets are what
readers see of it.
"""
