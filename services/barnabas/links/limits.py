"""Named limits of links, however a peer is reached."""

from __future__ import annotations

from typing import Final

UNANSWERED_BYTES_MAX: Final = 256 * 1024 * 1024
"""What a link may hold in requests without a result before further ones are refused, where its owner says nothing else;
a gateway gives each storage node less."""

TRANSACTION_QUESTIONS_MAX: Final = 64_000
"""Questions that may wait for one transaction coordinator; further ones are refused. As many as a storage node has room
for records that wait for the answers."""

TRANSACTION_QUESTIONS_AT_ONCE: Final = 1_000
"""Questions that go to it in one call."""

TRANSACTION_CALL_SECONDS: Final = 5.0
"""How long it may take to answer; what is to be asked of it meanwhile waits for the next call."""

TRANSACTIONS_WAITED_FOR_MAX: Final = 1_000
"""Calls to transaction coordinators at a time that wait for a transaction to end; further questions are asked again
after a pause."""

CONCURRENT_RETRY_MS: Final = 20
"""That pause, where no setting says another."""

CONCURRENT_WAIT_MS: Final = 200
"""How long gateways and group coordinators have what begins a transaction wait for the one before to end everywhere.
Markers take a few ms; told CONCURRENT_TRANSACTIONS, clients pause for 20 to 100."""
