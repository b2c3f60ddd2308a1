"""The dashboard of transactions: their coordinators, the partitions that they are in, offsets inside of them."""

from __future__ import annotations

from typing import Final

from generator.panels import ANY_IS_BAD, GREEN, ORANGE, RED, Dashboard, Query, Row, graph, number
from generator.promql import C, quantile, rate, total

_OURS: Final = "barnabas_coordinator_"
_MARKERS: Final = "kafka_coordinator_transaction_transactionmarkerchannelmanager_"
_REPLICAS: Final = "kafka_server_replicamanager_"
_VERIFICATION: Final = "kafka_server_addpartitionstotxnmanager_"

_NOW = Row(
    "Now",
    (
        number(
            "Open",
            "Transactions that producers have begun and not ended.",
            "none",
            total(f"{_OURS}ongoing_transactions"),
            width=6,
        ),
        number(
            "Oldest open",
            "Since when the oldest of them is open.",
            "s",
            f"max ({_OURS}oldest_ongoing_transaction_seconds{{{C}}})",
            thresholds=((None, GREEN), (300, ORANGE), (900, RED)),
            width=6,
        ),
        number(
            "Markers to land",
            "Since when a transaction is decided of which some partition does not know it.",
            "s",
            f"max ({_OURS}oldest_unmarked_transaction_seconds{{{C}}})",
            thresholds=((None, GREEN), (10, ORANGE), (60, RED)),
            width=6,
        ),
        number(
            "Partitions with late transactions",
            "Partitions, on the node that has most, with a transaction that should have ended.",
            "none",
            f"max ({_REPLICAS}partitionswithlatetransactionscount{{{C}}})",
            thresholds=ANY_IS_BAD,
            width=6,
        ),
    ),
)

_COORDINATORS = Row(
    "Coordinators",
    (
        graph(
            "Ends",
            "Transactions committed and aborted; those that were open for too long are among the aborted.",
            "cps",
            Query(rate(f"{_OURS}transactions_total", by="end"), "{{end}}"),
            Query(rate(f"{_OURS}transaction_time_outs_total"), "timed out"),
        ),
        graph(
            "Open transactions",
            "By the coordinator that has them.",
            "none",
            Query(total(f"{_OURS}ongoing_transactions", by="instance"), "{{instance}}"),
        ),
        graph(
            "Oldest open transaction",
            "It is aborted when it is open for longer than its producer asked for.",
            "s",
            Query(
                f"max by (instance) ({_OURS}oldest_ongoing_transaction_seconds{{{C}}})",
                "{{instance}}",
            ),
            thresholds=((None, GREEN), (900, RED)),
        ),
        graph(
            "Waiting for markers",
            "Transactions that are decided, and not every partition knows; of them those that a partition refused, and "
            "those whose own log does not know that all do.",
            "none",
            Query(total(f"{_OURS}unmarked_transactions", by="instance"), "{{instance}}"),
            Query(total(f"{_OURS}given_up_transactions", by="instance"), "given up {{instance}}"),
            Query(total(f"{_MARKERS}logappendretryqueuesize", by="instance"), "to be written {{instance}}"),
        ),
        graph(
            "Oldest transaction without all markers",
            "Since when it is decided.",
            "s",
            Query(
                f"max by (instance) ({_OURS}oldest_unmarked_transaction_seconds{{{C}}})",
                "{{instance}}",
            ),
            thresholds=((None, GREEN), (60, RED)),
        ),
        graph(
            "Markers",
            "What came of them, one for each partition and try.",
            "cps",
            Query(rate(f"{_OURS}markers_total", by="result"), "{{result}}"),
        ),
        graph(
            "Marking (p99)",
            "From a decision until all partitions knew it: so long readers of committed records wait.",
            "s",
            Query(quantile(0.99, f"{_OURS}marking_seconds", by="instance"), "{{instance}}"),
            thresholds=((None, GREEN), (0.5, RED)),
        ),
        graph(
            "Markers for nobody",
            "Markers whose partition has no leader.",
            "none",
            Query(total(f"{_MARKERS}unknowndestinationqueuesize", by="instance"), "{{instance}}"),
            thresholds=ANY_IS_BAD,
        ),
        graph(
            "Transactional ids",
            "Ids that are known, by coordinator.",
            "none",
            Query(total(f"{_OURS}transactional_ids", by="instance"), "{{instance}}"),
        ),
        graph(
            "Partitions of __transaction_state",
            "Served; owned but not loaded yet; without writes.",
            "none",
            Query(total(f"{_OURS}transactions_loaded_partitions", by="instance"), "served {{instance}}"),
            Query(total(f"{_OURS}transactions_loading_partitions", by="instance"), "loading {{instance}}"),
            Query(
                total(f"{_OURS}transactions_read_only_partitions", by="instance"), "read only {{instance}}"
            ),
            width=12,
        ),
        graph(
            "Forgotten ids",
            "Ids that nobody has used for transactional.id.expiration.ms.",
            "cps",
            Query(rate(f"{_OURS}transactional_id_expirations_total", by="instance"), "{{instance}}"),
            width=12,
        ),
    ),
)

_PARTITIONS = Row(
    "Partitions",
    (
        graph(
            "Hidden records",
            "Offsets below the high watermark that open transactions hide from readers of committed records: the ten "
            "partitions with most.",
            "none",
            Query(
                f"topk(10, max by (topic, partition) (kafka_cluster_partition_laststableoffsetlag{{{C}}}))",
                "{{topic}}-{{partition}}",
            ),
        ),
        graph(
            "Late transactions",
            "Partitions whose oldest open transaction's producer is silent for longer than any may be.",
            "none",
            Query(
                total(f"{_REPLICAS}partitionswithlatetransactionscount", by="instance"),
                "{{instance}}",
            ),
            thresholds=ANY_IS_BAD,
        ),
        graph(
            "Producers",
            "Producers that partitions remember, transactional or not.",
            "none",
            Query(total(f"{_REPLICAS}produceridcount", by="instance"), "{{instance}}"),
        ),
        graph(
            "Refused by verification",
            "First records of transactions that no coordinator vouched for.",
            "cps",
            Query(rate(f"{_VERIFICATION}verificationfailurerate_total", by="instance"), "{{instance}}"),
        ),
        graph(
            "Verification (p99)",
            "From the first record of a transaction in a partition to the coordinator's answer.",
            "ms",
            Query(quantile(0.99, f"{_VERIFICATION}verificationtimems", by="instance"), "{{instance}}"),
            thresholds=((None, GREEN), (100, RED)),
        ),
        graph(
            "Waiting for verification",
            "Record bytes that wait for a coordinator's answer.",
            "bytes",
            Query(total("barnabas_storage_unverified_bytes", by="instance"), "{{instance}}"),
        ),
    ),
)

_OFFSETS = Row(
    "Offsets in transactions",
    (
        graph(
            "Transactional offset commits",
            "Offsets committed as part of transactions, whatever became of these.",
            "cps",
            Query(rate(f"{_OURS}transactional_offset_commits_total", by="instance"), "{{instance}}"),
        ),
        graph(
            "Pending offsets",
            "Offsets of transactions that are open: consumers that want stable ones wait for them.",
            "none",
            Query(total(f"{_OURS}pending_offsets", by="instance"), "{{instance}}"),
        ),
        graph(
            "Open in __consumer_offsets",
            "Transactions that are open there, once for each partition.",
            "none",
            Query(total(f"{_OURS}open_transactions", by="instance"), "{{instance}}"),
        ),
    ),
)

TRANSACTIONS = Dashboard(
    "transactions",
    "Transactions",
    "What is open and for how long, whether markers land, what readers of committed records wait for.",
    (),
    (_NOW, _COORDINATORS, _PARTITIONS, _OFFSETS),
)
