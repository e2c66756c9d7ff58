"""The identities of clients, and how connections prove them.

principal.py    the name and kind of what sends requests
"""
