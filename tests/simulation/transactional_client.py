"""A transactional producer as clients of Kafka have it, of both generations (KIP-98, KIP-890).

The older one adds partitions before it writes to them, and keeps its epoch; the newer one leaves that to the leaders of
partitions, and each end of a transaction gives it the next epoch.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from clients import ANSWER_SECONDS_MAX, TRY_AGAIN, Versions, topic_of
from history import Place
from kafka_client import REQUEST_SECONDS_MAX, RETRY_SECONDS, KafkaClient
from kafka_connection import INIT_PRODUCER_ID, PRODUCE, Disconnected, KafkaConnection
from transaction_history import Instance, Transaction, TransactionHistory
from world import World

from barnabas.kernel.errors import ErrorCode
from barnabas.records.record import encode_batch

FIND_COORDINATOR: Final = 10
ADD_PARTITIONS: Final = 24
ADD_OFFSETS: Final = 25
END_TXN: Final = 26
TXN_OFFSET_COMMIT: Final = 28

GROUP_KEY: Final = 0
TRANSACTION_KEY: Final = 1

COORDINATOR_CODES: Final = frozenset(
    {
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.request_timed_out,
        ErrorCode.concurrent_transactions,
    }
)
"""After which a coordinator is asked again."""

FENCED: Final = frozenset(
    {ErrorCode.producer_fenced, ErrorCode.invalid_producer_epoch, ErrorCode.invalid_producer_id_mapping}
)
"""Somebody else is, or was, the producer of that id: a transaction that took too long is ended by the coordinator."""

ABORTABLE: Final = frozenset(
    {
        ErrorCode.transaction_abortable,
        ErrorCode.invalid_txn_state,
        ErrorCode.out_of_order_sequence_number,
        ErrorCode.unknown_producer_id,
    }
)

OF_MEMBERS: Final = frozenset(
    {ErrorCode.illegal_generation, ErrorCode.unknown_member_id, ErrorCode.rebalance_in_progress}
)
"""It is another member's to commit these offsets."""

SPARE_SECONDS: Final = 0.05
"""By how much a coordinator may be ahead with a time-out."""


class Fenced(Exception):
    """The producer is none any more."""


class Abortable(Exception):
    """The transaction has to be aborted."""


class TransactionalClient:
    """Owner of one instance's id, epoch and sequences."""

    def __init__(
        self,
        world: World,
        client: KafkaClient,
        history: TransactionHistory,
        transactional_id: str,
        chance: random.Random,
        *,
        is_new: bool,
        timeout_ms: int,
    ) -> None:
        """`is_new`: of the newer generation."""
        self.instance: Instance = history.new_instance(transactional_id)
        self.transaction: Transaction | None = None
        self._world = world
        self._client = client
        self._history = history
        self._chance = chance
        self._is_new = is_new
        self._versions = Versions(chance.choice((12, 13)) if is_new else chance.choice((9, 10, 11)), 12)
        self._timeout_ms = timeout_ms
        self._producer_id = -1
        self._epoch = -1
        self._sequences: dict[Place, int] = {}
        self._added: set[Any] = set()
        self._numbers = 0
        self._began = 0.0
        self._may_be_open = False
        """Whether a coordinator may have heard of a transaction of which nobody has told it the end."""
        self._has_unsettled = False
        """Whether nobody knows what became of some batch: the partition's sequence is not known."""
        self._may_be_newer = False
        """Whether a coordinator may have written the next epoch without saying so: which epoch was the last is in no
        log, in Kafka neither, so that another coordinator fences who asks again with it.
        """
        self._coordinators: dict[tuple[int, str], str] = {}

    # -- life ---------------------------------------------------------------------------------------------------

    async def initialize(self) -> None:
        """Get id and epoch. Raises Fenced."""
        has_id = self._producer_id >= 0
        request = {
            "transactional_id": self.instance.transactional_id,
            "transaction_timeout": self._timeout_ms,
            "producer_id": self._producer_id,
            "producer_epoch": self._epoch,
        }
        answer = await self._ask(INIT_PRODUCER_ID, 5 if self._is_new else 4, request)
        if answer.error_code:
            # A request without an answer may have given the id another epoch.
            self._refuse(INIT_PRODUCER_ID, answer.error_code)
        if has_id and answer.producer_id == self._producer_id and answer.producer_epoch <= self._epoch:
            self._world.violate(f"{self.instance.name} is given epoch {answer.producer_epoch} again")
        self._take(answer)
        self._history.on_initialized(self.instance)
        self._say(f"has id {self._producer_id} and epoch {self._epoch}")

    def _take(self, answer: Any) -> None:
        self._may_be_open = False
        self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch
        self._sequences.clear()
        self._has_unsettled = self._may_be_newer = False

    def begin(self) -> Transaction:
        self._numbers += 1
        self._added.clear()
        if not self._may_be_open:  # else this one goes on with what the coordinator has heard of
            self._began = self._world.now
        self.transaction = self._history.begin(self.instance, self._numbers)
        return self.transaction

    @property
    def is_overdue(self) -> bool:
        """Whether the transaction may have been ended by now because it took too long, by its coordinator's clock."""
        took_seconds = self._world.now - self._began
        return (
            took_seconds > self._timeout_ms / 1000 - SPARE_SECONDS
            or self._world.clock_jumped_at > self._began - SPARE_SECONDS
        )

    # -- within a transaction -----------------------------------------------------------------------------------

    async def send(self, place: Place, values: Sequence[bytes]) -> None:
        """Have it written, once. Raises Fenced, Abortable."""
        transaction = self._open()
        was_fenced = self.instance.is_fenced
        self._history.on_sent(transaction, place, list(values))
        self._may_be_open = True
        if not self._is_new:
            await self._add(place)
        sequence = self._sequences.get(place, 0)
        self._sequences[place] = sequence + len(values)
        now_ms = 1_700_000_000_000 + int(self._world.now * 1000)
        records = encode_batch(
            [(now_ms, None, value, ()) for value in values],
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=sequence,
            transactional=True,
        )
        self._added.add(place)
        self._has_unsettled = True
        offset = await self._until_written(place, records)
        self._has_unsettled = False
        self._history.on_acknowledged(transaction, place, offset, list(values), was_fenced=was_fenced)

    async def _until_written(self, place: Place, records: bytes) -> int:
        while True:
            result = await self._try_to_write(place, records)
            code = ErrorCode(result.error_code) if result is not None else None
            if result is not None and code in (ErrorCode.none, ErrorCode.duplicate_sequence_number):
                self._say(f"{self.transaction}: {place} at {result.base_offset}")
                return int(result.base_offset)
            if code is not None and code not in TRY_AGAIN and code is not ErrorCode.concurrent_transactions:
                self._say(f"{self.transaction}: {place}: {code.name} {getattr(result, 'error_message', '')}")
                self._refuse(PRODUCE, code)
            self._client.refresh()
            await asyncio.sleep(self._chance.uniform(0.2, 1.0) * RETRY_SECONDS)

    async def _try_to_write(self, place: Place, records: bytes) -> Any:
        """The partition's answer; None if there is none."""
        leader = self._client.leader(place)
        if leader is None:
            return None
        timeout_ms = self._chance.choice((300, 1000, 1500))
        topic = {
            **topic_of(place, leader, self._versions, "name"),
            "partition_data": [{"index": place.partition, "records": records}],
        }
        request = {
            "transactional_id": self.instance.transactional_id,
            "acks": -1,
            "timeout": timeout_ms,
            "topic_data": [topic],
        }
        try:
            connection = await self._client.connection(leader.address)
            seconds = timeout_ms / 1000 + ANSWER_SECONDS_MAX
            answer = await connection.send(PRODUCE, self._versions.produce, request, seconds)
        except (ConnectionError, Disconnected) as error:
            self._say(f"{place}: {error}")
            return None
        return answer.responses[0].partition_responses[0]

    async def _add(self, place: Place) -> None:
        if place in self._added:
            return
        fields = {f"v3_and_below_{name}": value for name, value in self._named().items()}
        topics = [{"name": place.topic, "partitions": [place.partition]}]
        request = {**fields, "v3_and_below_topics": topics}
        answer = await self._ask(
            ADD_PARTITIONS,
            3,
            request,
            lambda answer: (
                answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
            ),
        )
        code = answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
        if code:
            self._refuse(ADD_PARTITIONS, code)
        self._added.add(place)

    async def commit_offsets(
        self, group: str, generation: int, member_id: str, offsets: dict[Place, int]
    ) -> None:
        """As part of the transaction. Raises Fenced, Abortable."""
        transaction = self._open()
        self._may_be_open = True
        if not self._is_new and group not in self._added:
            answer = await self._ask(ADD_OFFSETS, 3, {**self._named(), "group_id": group})
            if answer.error_code:
                self._refuse(ADD_OFFSETS, answer.error_code)
        self._added.add(group)
        transaction.offsets.update(offsets)
        partitions = [
            {"partition_index": place.partition, "committed_offset": offset, "committed_metadata": ""}
            for place, offset in offsets.items()
        ]
        request = {
            **self._named(),
            "group_id": group,
            "generation_id": generation,
            "member_id": member_id,
            "topics": [{"name": next(iter(offsets)).topic, "partitions": partitions}],
        }

        def code_of(answer: Any) -> int:
            codes = [each.error_code for topic in answer.topics for each in topic.partitions]
            return int(next((code for code in codes if code), 0))

        answer = await self._ask(
            TXN_OFFSET_COMMIT, 5 if self._is_new else 3, request, code_of, key=(GROUP_KEY, group)
        )
        code = ErrorCode(code_of(answer))
        if code in OF_MEMBERS:
            raise Abortable(f"offsets are refused with {code.name}")
        if code is not ErrorCode.none:
            self._refuse(TXN_OFFSET_COMMIT, code)

    async def end(self, *, committed: bool) -> None:
        """Commit or abort. Raises Fenced; Abortable where it cannot be committed."""
        transaction, was_fenced = self._open(), self.instance.is_fenced
        if not self._added:
            self.transaction = None
            transaction.is_aborted = True
            return
        self._history.on_end_asked(transaction, committed=committed and not was_fenced)
        answer = await self._ask(END_TXN, 5 if self._is_new else 3, {**self._named(), "committed": committed})
        self._say(f"{transaction}: {'commit' if committed else 'abort'}: {answer.error_code.name}")
        if answer.error_code:
            self._refuse(END_TXN, answer.error_code)
        self.transaction, self._may_be_open = None, False
        if self._is_new:
            self._take(answer)
        if committed:
            self._history.on_committed(transaction, was_fenced=was_fenced)
        else:
            await self._after_abort(transaction)

    async def _after_abort(self, transaction: Transaction) -> None:
        self.transaction = None
        self._history.on_aborted(transaction)
        if self._has_unsettled and not self._is_new:
            self._history.last_ends[self.instance.transactional_id] = None
            await self.initialize()  # for a new epoch, and sequences that are known (KIP-360)

    def _open(self) -> Transaction:
        assert self.transaction is not None, "a transaction was begun"
        return self.transaction

    def _named(self) -> dict[str, Any]:
        return {
            "transactional_id": self.instance.transactional_id,
            "producer_id": self._producer_id,
            "producer_epoch": self._epoch,
        }

    # -- asking -------------------------------------------------------------------------------------------------

    def _refuse(self, api_key: int, code: int) -> None:
        """Raises Fenced or Abortable, and tells of what the producer has not deserved."""
        error = ErrorCode(code)
        is_deserved = (
            self.instance.may_be_fenced
            or (self.transaction is not None and self.is_overdue)
            or (api_key == INIT_PRODUCER_ID and self._may_be_newer and error in FENCED)
        )
        if error not in FENCED | ABORTABLE or not is_deserved:
            self._world.violate(f"{self.instance.name}: {api_key} is refused with {error.name}")
        transaction = self.transaction
        is_over = error in FENCED
        if is_over and transaction is not None and not transaction.is_commit_asked:
            self._history.on_aborted(transaction, is_told=False)
        raise (Fenced if is_over else Abortable)(f"{api_key} is refused with {error.name}")

    async def _ask(
        self,
        api_key: int,
        version: int,
        request: dict[str, Any],
        code_of: Callable[[Any], int] = lambda answer: int(answer.error_code),
        key: tuple[int, str] | None = None,
    ) -> Any:
        """The coordinator's answer, once there is one that is not to ask again."""
        key = key or (TRANSACTION_KEY, self.instance.transactional_id)
        while True:
            try:
                answer = await self._once(
                    key, lambda made: made.send(api_key, version, request, REQUEST_SECONDS_MAX)
                )
                code = ErrorCode(code_of(answer))
                if code not in COORDINATOR_CODES:
                    return answer
                if code is not ErrorCode.concurrent_transactions:
                    self._coordinators.pop(key, None)
                is_unheard = code is ErrorCode.coordinator_not_available
                if api_key == INIT_PRODUCER_ID and code is ErrorCode.coordinator_load_in_progress:
                    self._may_be_newer = True  # a write whose end nobody knows is answered so, too
                self._say(f"{api_key}: {code.name}")
            except (ConnectionError, Disconnected) as error:
                self._say(f"{api_key}: {error}")
                self._coordinators.pop(key, None)
                is_unheard = isinstance(error, Disconnected)
            if is_unheard and api_key == INIT_PRODUCER_ID:
                self._history.on_unheard(self.instance)
            await asyncio.sleep(self._chance.uniform(0.2, 1.0) * RETRY_SECONDS)

    async def _once(self, key: tuple[int, str], send: Callable[[KafkaConnection], Awaitable[Any]]) -> Any:
        """Raises ConnectionError, Disconnected."""
        if key not in self._coordinators:
            found = await self._client.ask_once(FIND_COORDINATOR, 3, {"key": key[1], "key_type": key[0]})
            if found.error_code:
                raise ConnectionError(f"there is no coordinator: {found.error_code.name}")
            self._coordinators[key] = f"{found.host}:{found.port}"
        return await send(await self._client.connection(self._coordinators[key]))

    def _say(self, what: str) -> None:
        self._world.trace.say(self.instance.name, what)
