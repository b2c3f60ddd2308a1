"""The answer to DescribeTransactions as Kafka gives it: where no transaction is open, the time at which it began is -1.
kio's schema has a time in its place, which is none below 0.
"""

from dataclasses import dataclass, field

from kio.schema.describe_transactions.v0 import response
from kio.static.primitive import TZAware


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionState(response.TransactionState):
    """One transactional id."""

    transaction_start_time: TZAware | None = field(  # type: ignore[assignment]
        metadata={"kafka_type": "datetime_i64"}
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeTransactionsResponse(response.DescribeTransactionsResponse):
    """The whole answer."""

    transaction_states: tuple[TransactionState, ...]
