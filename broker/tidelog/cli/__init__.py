"""The command line: `tidelog COMMAND`, each imported when it runs.

Brokers:
serve.py          runs one broker or several; serve_cluster.py  runs several
broker.py         runs one node of a cluster
format.py         formats the directories of a node; scram_users.py  its first users
ending.py         ends a broker's process on a signal or at the end of its input
log_lines.py      the log on standard error, as text or JSON
heap.py           keeps garbage collections short
streams.py        standard input, output and error of these commands

Console tools, for any broker:
topics.py         lists, creates, describes, alters and deletes topics
groups.py         lists, describes, resets and deletes consumer groups
records.py        deletes records
leaders.py        elects leaders of partitions
partitions.py     moves a partition to other brokers
transactions.py   lists transactions and aborts one
configs.py        describes and alters settings
produce.py        writes lines to a topic
consume.py        prints records
json_records.py   records as lines of JSON
formats.py        formats of keys and values: hex, JSON, numbers
tiers.py          shows the segments of a topic, local and remote
client_config.py  prints the configuration of a client of a secured cluster
completion.py     completes commands and options in shells
verify.py         reads records back and checks them
positions.py      offsets and times as users give them
connection.py     how these tools connect: --command-config
common.py         options, errors and tables of these tools
"""
