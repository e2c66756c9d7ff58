"""The identities of clients, and how connections prove them.

principal.py    the name and kind of what sends requests
guard.py        the security of one listener
sasl.py         the SASL mechanisms of a listener; refused.py  why one failed
plain.py        PLAIN; scram.py  SCRAM-SHA-256 and SCRAM-SHA-512
delegation_tokens.py  their secrets, and logins with them
oauthbearer.py  OAUTHBEARER with unsecured tokens; signed_tokens.py  and signed ones
jwks.py         the keys of signed tokens
login.py        how this broker authenticates to others; conversation.py  the SASL of a client
jaas.py         login modules as `sasl.jaas.config` names them
tls.py          contexts of TLS for listeners and for connections to other brokers
stores.py       key and trust stores of Java as PEM; pem.py  PEM as Kafka takes it
renewal.py      what stores an open listener changes to
trust.py        whether brokers with these stores would connect to each other
names.py        the user's name that a client's certificate has
acls.py         ACLs, and the index that decides with them
authorizer.py   decides what a principal may do: super users, ACLs, the default
"""
