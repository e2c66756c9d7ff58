"""The quorum over the metadata log (KIP-595): leader election and commitment.

    core.py    the state machine of one voter: events and time in, effects out; no I/O
    events.py  its vocabulary: events and effects
    progress.py a leader's state of the other replicas
    driver.py  performs effects: timers, votes, the leader's flushes
    requests.py requests to the other voters
    channels.py addresses of the controllers, and channels to them (KIP-853)
    voter_changes.py a leader adds, removes and updates voters of the log, and begins to name them
    joining.py a controller's own entry among them
    fetcher.py a follower's copy: fetch, append, truncate, load a snapshot if far behind

The log itself, its images and snapshots are `tidelog.cluster.metadata`; `tidelog.api.quorum`
handles the requests of other voters. The only voter elects itself when it starts,
and imports neither `requests` nor `fetcher`.
"""
