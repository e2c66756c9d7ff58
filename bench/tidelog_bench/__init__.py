"""The benchmark harness: tidelog and its peers, run alternately.

`python -m tidelog_bench` (`make bench`):
    rounds.py             runs cases against peers in a shuffled order
    cases.py              what is measured of one broker
    cluster_case.py       of three brokers
    transaction_cases.py  of transactions
    tier_cases.py         of a remote tier
    control_case.py       of the control door
    tls_cases.py          of TLS
    spark_case.py         of a Spark query
    results.py            table, JSON and noise
    plot.py               bars beside Apache Kafka's
    page_cache.py         gets memory ready for what a case writes
    peers/                the brokers that are measured
    loads/                the clients that put load on them; go/ and java/ are their programs

Questions of their own, `python -m tidelog_bench.NAME`:
    bench_broker.py       CPU per Produce and Fetch without sockets
    bench_sockets.py      CPU per request over sockets, beside the limits of ceilings.py
    bench_log.py          an append and a read of a log
    bench_partitions.py   thousands of partitions
    bench_groups.py       how soon a large group is stable, and what its heartbeats cost
    group_members.py      members of a KIP-848 group that cost little, for it
    bench_share.py        how fast a share group reads
    bench_hostile.py      how long hostile bytes delay another client, and the memory they take
    bench_held.py         which requests hold the event loop for longest
    bench_failover.py     a failover of thousands of partitions
    bench_test_runs.py    starts and resets of a test run's brokers, and what they leave
"""
