"""One call of `links/transactions_link.py`, one file."""
