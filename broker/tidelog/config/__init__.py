"""The broker's settings: Kafka's property names, each declared once.

vocabulary.py  how a setting is declared, and Kafka's texts for invalid values
keys.py        every broker setting: name, type, default, range, doc
tiered_keys.py every setting of the remote tier
group_keys.py  settings of consumer groups of KIP-848, of share and of streams groups
inert_keys.py  settings of Kafka that have no effect here
unavailable_keys.py  and those that may only have their default
authorizer_keys.py  settings of the authorizer
group_limits.py  minimum and maximum of these, and the rules between them
group_settings.py  what one group may set for itself
client_metrics.py  what one subscription of clients' metrics may set (KIP-714)
security_keys.py  settings of TLS and SASL; listeners.py  the values of one listener
listener_changes.py  what a running broker may change of its listeners
patterns.py    regular expressions of clients
broker.py      BrokerConfig: the settings of one broker, checked
properties.py  Java's properties format
environment.py settings from KAFKA_* environment variables
"""
