"""The tiered profile: the same raw requests to two brokers with a remote tier, of either kind.

doors       two tidelogs with a directory store, or two Apache Kafkas with LocalTieredStorage
session     one case against them; topics whose segments hold as many batches as a case says
layouts     topics that are in both tiers, made once and only read by cases
cases_*     the cases
runner      all of it against one cluster
"""
