"""Certificates, users and tokens of a secured cluster, and configurations for its clients.

kinds.py       what `security=...` may be
folder.py      the folder with certificates, keys and passwords, made once
authority.py   makes certificates and stores (the extra [security])
listeners.py   the brokers' settings
wishes.py      what one client uses, or is to be refused with
clients.py     the configuration of each client library
tokens.py      tokens of OAUTHBEARER
state.py       how clients authenticate, and the configuration of one
"""
