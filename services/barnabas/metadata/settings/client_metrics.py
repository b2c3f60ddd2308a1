"""The settings of a subscription to clients' metrics (KIP-714)."""

from __future__ import annotations

from typing import Final

from barnabas.metadata.settings.row import CLUSTER, INT, LIST, MEDIUM, Row

SETTINGS: Final[tuple[Row, ...]] = (
    ("interval.ms", INT, "300000", None, MEDIUM, CLUSTER,
     "Milliseconds between two pushes of a client's metrics."),
    ("match", LIST, "", None, MEDIUM, CLUSTER,
     "The clients that are asked: name=pattern pairs, all of which must fit; empty for every client."),
    ("metrics", LIST, "", None, MEDIUM, CLUSTER,
     "The metrics that are asked for, by the beginning of their names; * for all, empty for none."),
)  # fmt: skip
