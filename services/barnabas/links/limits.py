"""Named limits of links, however a peer is reached."""

from __future__ import annotations

from typing import Final

UNANSWERED_BYTES_MAX: Final = 256 * 1024 * 1024
"""What a link may hold in requests without a result before further ones are refused, where its owner says nothing else;
a gateway gives each storage node less."""
