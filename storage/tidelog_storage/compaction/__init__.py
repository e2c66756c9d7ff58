"""Compaction: of each key of a log, the newest record stays (KIP-58, KIP-98, KIP-280, KIP-534).

    plan.py          which log, up to which offset, which segments together: pure decisions
    offset_map.py    key -> newest offset, within a bounded memory
    transactions.py  which batches and markers of transactions may go
    batch_filter.py  one batch in, what is left of it out
    rewriting.py     one pass over a log in small steps, run off the loop, on frozen values
    swap.py          compacted files take the place of old ones; what a crash left of that
    cleaner.py       the passes over all logs of a manager: begin, advance, finish

Batches keep their offsets, producers, sequences, epochs and codecs; gaps between offsets are what
readers see of it.
"""
