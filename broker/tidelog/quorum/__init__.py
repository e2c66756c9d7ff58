"""The quorum over the metadata log (KIP-595): who leads, what is committed.

    core.py    the state machine of one voter: events and time in, effects out; no I/O
    events.py  its vocabulary: events and effects
    progress.py what a leader knows of the other replicas
    driver.py  carries effects out: timers, votes, the leader's flushes
    fetcher.py a follower's copy: fetch, append, cut, a snapshot when it is far behind

The log itself, its images and snapshots are `tidelog.metadata`; the requests of other voters come
in by `tidelog.api.quorum`. A quorum of one imports none of this.
"""
