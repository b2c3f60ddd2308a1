"""Named limits of links, however a peer is reached."""

from __future__ import annotations

from typing import Final

UNANSWERED_BYTES_MAX: Final = 256 * 1024 * 1024
"""What a link may hold in requests without a result before further ones are refused, where its owner says nothing else;
a gateway gives each storage node less."""

TRANSACTION_QUESTIONS_MAX: Final = 10_000
"""Questions that may wait for one transaction coordinator; further ones are refused."""

TRANSACTION_QUESTIONS_AT_ONCE: Final = 1_000
"""Questions that go to it in one call."""

CONCURRENT_WAIT_MS: Final = 200
"""How long a client and a group's coordinator have what begins a transaction wait for the one before to end everywhere.
Markers take a few ms; told CONCURRENT_TRANSACTIONS, clients pause for 20 to 100."""
