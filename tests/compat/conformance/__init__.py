"""The same raw requests to the reference Kafka and to tidelog, answers compared field by field.

messages    requests from plain data, answers to plain data, by the codec's own tables
session     one case against one broker: connections, answers, normalised transcript
registry    what a case is
cases_*     the cases, by family of APIs
compare     two transcripts -> differences
allowed     differences that are meant, each with its reason
recording   the reference's transcripts kept as JSON, so that comparing needs no Java
__main__    `python -m compat.conformance`: table of APIs, cases, equal, different
controllers the same at a controller's listener, with cases of its own in `cases_controllers`
cluster/    all of it again with three brokers
"""
