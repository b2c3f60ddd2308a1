"""The answer to DescribeTransactions as Kafka gives it: where no transaction is open, the time at which it began is -1.
kio's schema has a time in its place, which is none below 0.
"""

from __future__ import annotations

from dataclasses import field, make_dataclass
from typing import Any

from kio.schema.describe_transactions.v0 import response
from kio.static.primitive import TZAware


def _with_field(schema: type[Any], name: str, kind: Any, **metadata: str) -> type[Any]:
    """The structure `schema` with another type for one of its fields; kio reads the types, not their names."""
    changed = (name, kind, field(metadata=metadata))
    return make_dataclass(schema.__name__, [changed], bases=(schema,), frozen=True, slots=True, kw_only=True)


TransactionState = _with_field(
    response.TransactionState, "transaction_start_time", TZAware | None, kafka_type="datetime_i64"
)
DescribeTransactionsResponse = _with_field(
    response.DescribeTransactionsResponse,
    "transaction_states",
    tuple[TransactionState, ...],  # type: ignore[valid-type]
)
