"""Conversations of SASL and delegation tokens, compared with those of Apache Kafka.

doors      one broker of either kind, with listeners for each way to authenticate
session    the connection of a case, and what it says
clients    the clients' side of the mechanisms
cases_*    the cases
runner     runs them
"""
