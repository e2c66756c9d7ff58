"""The cluster profile: the same raw requests to three brokers of either kind.

doors       three tidelogs or three Apache Kafkas, each stopped by its id
session     one case against a cluster: any broker is asked, the transcript says which
cases_*     the cases; those of `cases_down` while the third broker is away
runner      all of it against one cluster
"""
