"""Transactional producers: epochs, partitions and offsets of transactions, their ends, who is fenced."""

from __future__ import annotations

from typing import Any, Final

from golden_batches import PRODUCE, batch, produce_body
from golden_session import UNKNOWN_TOPIC, Run, scenario
from golden_transactions import (
    ADD_OFFSETS,
    ADD_PARTITIONS,
    BATCHED_FROM,
    CONCURRENT_TRANSACTIONS,
    END_TXN,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    NEW_EPOCHS_FROM,
    TXN_OFFSET_COMMIT,
    Producer,
    committed_offsets,
    coordinators,
    init_body,
    producer,
)
from scenarios_groups import stable_member

IDS_FROM: Final = 3
"""The first version of InitProducerId that says which id and epoch the producer has."""
ADDED_FROM: Final = 12
"""The first version of Produce that adds partitions to the transaction."""
OFFSETS_ADDED_FROM: Final = 5
"""The first version of TxnOffsetCommit that does so."""
MEMBERS_FROM: Final = 3
"""The first version of it that says who commits."""


@scenario(FIND_COORDINATOR)
def find_coordinator_of_transactions(run: Run) -> None:
    coordinators(run)
    if run.version == 0:
        run.ask("group", {"key": "some-transaction"})
        return

    def find(step: str, *keys: str) -> None:
        run.ask(step, {"key": keys[0], "key_type": 1, "coordinator_keys": keys})

    find("transaction", "some-transaction")
    find("empty id", "")
    if run.version >= 4:
        find("several", "a", "b", "c", "a")


@scenario(INIT_PRODUCER_ID)
def init_producer_id_of_transactions(run: Run) -> None:
    coordinators(run)
    name = run.name("id")
    first = run.wait(INIT_PRODUCER_ID, init_body(name), lambda answer: not answer.error_code)
    run.record("first", first)
    run.ask("again", init_body(name))
    run.ask("another id", init_body(run.name("other")))
    run.ask("another timeout", init_body(name, transaction_timeout=5_000))
    for step, timeout in (("too long", 900_001), ("none", 0), ("negative", -1)):
        run.ask(f"timeout {step}", init_body(name, transaction_timeout=timeout))
    run.ask("longest timeout", init_body(name, transaction_timeout=900_000))
    run.ask("empty id", init_body(""))
    if run.version < IDS_FROM:
        return

    def known(step: str, epoch: int, *, producer_id: int = first.producer_id, of: str = name) -> None:
        run.ask(step, init_body(of, producer_id=producer_id, producer_epoch=epoch))

    run.ask("id without epoch", init_body(name, producer_id=first.producer_id))
    run.ask("epoch without id", init_body(name, producer_epoch=3))
    known("current", 3)
    known("current again, as after a lost answer", 3)
    known("older", 1)
    known("newer", 9)
    known("foreign id", 4, producer_id=first.producer_id + 900_000)
    known("after all of it", 4)
    known("id of a producer that is not known", 0, of=run.name("unknown"), producer_id=first.producer_id)


@scenario(INIT_PRODUCER_ID)
def init_producer_id_aborts(run: Run) -> None:
    """Who comes again while its transaction is open."""
    topic = run.topic()
    open_ = producer(run)
    open_.add(topic)
    open_.describe("open")
    body = init_body(open_.transactional_id)
    run.ask("while it is open", body)
    answer = run.wait(INIT_PRODUCER_ID, body, lambda answer: answer.error_code != CONCURRENT_TRANSACTIONS)
    run.record("once it is aborted", answer)
    open_.describe("aborted")
    run.ask("the one before ends it", open_.end_body(committed=False), api=END_TXN, version=4)
    run.ask("the one before ends it anew", open_.end_body(committed=False), api=END_TXN)
    run.ask("the one before produces", open_.produce_body(topic), api=PRODUCE)
    run.ask("the one before produces as it did", open_.produce_body(topic), api=PRODUCE, version=9)


@scenario(ADD_PARTITIONS)
def add_partitions_to_txn(run: Run) -> None:
    topic, other = run.topic(partitions=3), run.topic("other")
    mine = producer(run)
    version = run.version

    def add(step: str, *partitions: tuple[str, list[int]], of: Producer = mine, **fields: Any) -> None:
        run.ask(step, of.add_body(*partitions, version=version, **fields))

    add("unknown id", (topic.name, [0]), transactional_id=run.name("unknown"))
    add("empty id", (topic.name, [0]), transactional_id="")
    add("unknown and known partition", (topic.name, [0, 9]))
    add("unknown and known topic", (topic.name, [0]), (UNKNOWN_TOPIC.name, [0]))
    mine.describe("nothing is added")
    add("other producer", (topic.name, [0]), producer_id=mine.producer_id + 900_000)
    add("newer epoch", (topic.name, [0]), producer_epoch=mine.epoch + 1)
    add("older epoch", (topic.name, [0]), producer_epoch=mine.epoch - 1)
    add("one", (topic.name, [0]))
    mine.describe("one is added")
    add("again", (topic.name, [0]))
    add("several", (topic.name, [2, 1]), (other.name, [0]))
    add("one twice", (topic.name, [1, 1]), (topic.name, [1]))
    add("internal topic", ("__consumer_offsets", [0]))
    mine.describe("all are added")
    add("no partitions", (topic.name, []))
    if version < BATCHED_FROM:
        run.ask("no topics", mine.add_body(version=version))
    empty = producer(run, "empty")
    if version < BATCHED_FROM:
        run.ask("nothing to begin with", empty.add_body(version=version))
        empty.describe("begun with nothing")


@scenario(ADD_PARTITIONS)
def several_transactions(run: Run) -> None:
    """The form for brokers, which Kafka serves to anybody where nobody has to be authorized."""
    if run.version < BATCHED_FROM:
        return
    topic = run.topic(partitions=2)
    first, second, third = (producer(run, what) for what in ("first", "second", "third"))

    def ask(step: str, *transactions: dict[str, Any]) -> None:
        run.ask(step, {"transactions": list(transactions)})

    ask("verified before it is there", first.transaction((topic.name, [0, 1]), verify_only=True))
    first.add(topic)
    ask("one of two is there", first.transaction((topic.name, [0, 1]), verify_only=True))
    ask(
        "verified with another epoch",
        first.transaction((topic.name, [0]), verify_only=True, producer_epoch=first.epoch + 1),
    )
    ask(
        "verified with another id",
        first.transaction((topic.name, [0]), verify_only=True, producer_id=first.producer_id + 900_000),
    )
    ask(
        "verified of nobody",
        first.transaction((topic.name, [0]), verify_only=True, transactional_id=run.name("unknown")),
    )
    ask("unknown partition verified", first.transaction((topic.name, [0, 7]), verify_only=True))
    ask(
        "several at once",
        first.transaction((topic.name, [0]), verify_only=True),
        second.transaction((topic.name, [0])),
        third.transaction((topic.name, [0, 9])),
    )
    for each in (first, second, third):
        each.describe(f"{each.transactional_id.rpartition('-')[2]} in the end")


@scenario(ADD_OFFSETS)
def add_offsets_to_txn(run: Run) -> None:
    mine = producer(run)

    def add(step: str, group: str, **fields: Any) -> None:
        run.ask(step, {**mine.named, "group_id": group, **fields})

    group = run.name("group")
    add("unknown id", group, transactional_id=run.name("unknown"))
    add("empty id", group, transactional_id="")
    add("other producer", group, producer_id=mine.producer_id + 900_000)
    add("newer epoch", group, producer_epoch=mine.epoch + 1)
    mine.describe("nothing is added")
    add("added", "same-group-everywhere")
    mine.describe("the group's partition is there")
    add("again", "same-group-everywhere")
    add("empty group", "")


@scenario(END_TXN)
def end_txn(run: Run) -> None:
    """Commits and aborts of what is open and of what is not, each also once more, as after a lost answer."""
    topic = run.topic(partitions=2)
    mine = producer(run)
    version = run.version

    def end(step: str, *, committed: bool, **fields: Any) -> Any:
        answer = run.ask(step, mine.end_body(committed=committed, **fields))
        mine.wait_complete()
        return answer

    def begin() -> None:
        if version >= NEW_EPOCHS_FROM:
            mine.produce(topic)
        else:
            mine.add(topic)

    for step, fields in (
        ("unknown id", {"transactional_id": run.name("unknown")}),
        ("empty id", {"transactional_id": ""}),
        ("other producer", {"producer_id": mine.producer_id + 900_000}),
        ("newer epoch", {"producer_epoch": mine.epoch + 1}),
        ("older epoch", {"producer_epoch": mine.epoch - 1}),
    ):
        end(step, committed=True, **fields)
    end("nothing committed", committed=True)
    mine.went_on(end("nothing aborted", committed=False), version)
    for done, committed in (("committed", True), ("aborted", False)):
        begin()
        ended = mine.named
        answer = end(done, committed=committed)
        mine.describe(f"{done}: described")
        end(f"{done}: once more", committed=committed, **ended)
        end(f"{done}: the opposite", committed=not committed, **ended)
        mine.went_on(answer, version)
        end(f"{done}: commit after it", committed=True)
        mine.went_on(end(f"{done}: abort after it", committed=False), version)
    mine.describe("in the end")


@scenario(END_TXN)
def fenced_producers(run: Run) -> None:
    """A second instance with the same transactional id: whatever the first one does is refused."""
    topic, group = run.topic(), run.name("group")
    first = producer(run)
    first.produce(topic)
    first.end(version=run.version)
    second = producer(run)
    run.ask("ends", first.end_body(committed=True))
    run.ask("ends otherwise", first.end_body(committed=False))
    run.ask("adds", first.add_body((topic.name, [0]), version=3), api=ADD_PARTITIONS, version=3)
    run.ask(
        "adds, as an old client", first.add_body((topic.name, [0]), version=1), api=ADD_PARTITIONS, version=1
    )
    run.ask("adds offsets", {**first.named, "group_id": group}, api=ADD_OFFSETS)
    run.ask("commits offsets", first.offsets_body(group, topic, {0: 1}), api=TXN_OFFSET_COMMIT)
    run.ask(
        "commits added offsets", first.offsets_body(group, topic, {0: 1}), api=TXN_OFFSET_COMMIT, version=3
    )
    for version in (9, 11, ADDED_FROM):
        run.ask(f"produces, version {version}", first.produce_body(topic), api=PRODUCE, version=version)
    asked = init_body(first.transactional_id, producer_id=first.producer_id, producer_epoch=first.epoch)
    run.ask("asks for its next epoch", asked, api=INIT_PRODUCER_ID)
    run.ask("asks for it, as an old client", asked, api=INIT_PRODUCER_ID, version=3)
    second.produce(topic)
    run.ask("produces while the second does", first.produce_body(topic), api=PRODUCE, version=ADDED_FROM)
    second.end(version=run.version)
    second.describe("the second one's transaction")


@scenario(END_TXN, newest_only=True)
def timed_out_transaction(run: Run) -> None:
    topic = run.topic()
    mine = producer(run, transaction_timeout=500)
    mine.produce(topic)
    mine.wait_complete()
    mine.describe("after its time")
    run.ask("commits what is aborted", mine.end_body(committed=True))
    run.ask("produces", mine.produce_body(topic), api=PRODUCE)
    answer = run.ask("aborts what is aborted", mine.end_body(committed=False))
    mine.went_on(answer, run.version)
    mine.produce(topic)
    mine.end()
    mine.describe("goes on")
    old = producer(run, "old", transaction_timeout=500)
    old.add(topic)
    old.wait_complete()
    run.ask("old client commits", old.end_body(committed=True), version=4)
    run.ask("old client aborts", old.end_body(committed=False), version=4)


@scenario(TXN_OFFSET_COMMIT)
def txn_offset_commit(run: Run) -> None:
    topic, group = run.topic(partitions=2), run.name("group")
    mine = producer(run)
    version = run.version
    end_version = NEW_EPOCHS_FROM if version >= OFFSETS_ADDED_FROM else 4

    def add() -> None:
        if version < OFFSETS_ADDED_FROM:
            added = {**mine.named, "group_id": group}
            run.wait(ADD_OFFSETS, added, lambda answer: not answer.error_code)

    def commit(step: str, offsets: dict[int, int], **fields: Any) -> None:
        run.ask(step, mine.offsets_body(group, topic, offsets, **fields))

    commit("not added", {0: 5})
    committed_offsets(run, "read after that", group, topic)
    mine.end(committed=False, version=end_version) if version >= OFFSETS_ADDED_FROM else None
    add()
    commit("unknown id", {0: 5}, transactional_id=run.name("unknown"))
    commit("other producer", {0: 5}, producer_id=mine.producer_id + 900_000)
    commit("newer epoch", {0: 5}, producer_epoch=mine.epoch + 1)
    commit("committed in it", {0: 5})
    committed_offsets(run, "read while it is open", group, topic, [0, 1])
    committed_offsets(run, "read whether it is open or not", group, topic, [0, 1], stable=False)
    commit("unknown partition beside it", {9: 5, 1: 6})
    run.ask("unknown topic", mine.offsets_body(group, UNKNOWN_TOPIC, {0: 5}))
    commit("no partitions", {})
    commit("empty group", {0: 5}, group_id="")
    mine.end(version=end_version)
    committed_offsets(run, "read after the commit", group, topic, [0, 1])
    add()
    commit("in the next one", {0: 8})
    committed_offsets(run, "read while the next one is open", group, topic, stable=False)
    mine.end(committed=False, version=end_version)
    committed_offsets(run, "read after the abort", group, topic, [0, 1])
    commit("after its end", {0: 9})


@scenario(TXN_OFFSET_COMMIT)
def txn_offset_commit_of_a_member(run: Run) -> None:
    """From version 3 on it says who commits (KIP-447)."""
    if run.version < MEMBERS_FROM:
        return
    topic, group = run.topic(), run.name("group")
    mine = producer(run)
    joined = stable_member(run, group)
    member, generation = joined.member_id, joined.generation_id
    if run.version < OFFSETS_ADDED_FROM:
        run.quietly(ADD_OFFSETS, {**mine.named, "group_id": group})

    def commit(step: str, generation_id: int, member_id: str, **fields: Any) -> None:
        named = {"generation_id": generation_id, "member_id": member_id, **fields}
        run.ask(step, mine.offsets_body(group, topic, {0: 5}, **named))

    commit("nobody", -1, "")
    commit("member", generation, member)
    commit("older generation", generation - 1, member)
    commit("newer generation", generation + 1, member)
    commit("unknown member", generation, "nobody")
    commit("member without a generation", -1, member)
    commit("generation without a member", generation, "")
    commit("unknown instance", generation, member, group_instance_id="no-instance")
    commit("group that is not there", generation, member, group_id=run.name("nogroup"))


@scenario(PRODUCE)
def produce_in_transactions(run: Run) -> None:
    topic = run.topic(partitions=6)
    mine, other = producer(run), producer(run, "other")
    version = run.version
    end_version = NEW_EPOCHS_FROM if version >= ADDED_FROM else 4

    def send(step: str, partition: int, of: Producer = mine, **fields: Any) -> None:
        run.ask(step, of.produce_body(topic, partition, **fields))

    send("not added", 0)
    mine.sequences.clear()
    if version < ADDED_FROM:
        mine.add(topic, 0, 1)
    send("first", 1)
    send("second", 1)
    send("again", 1, base_sequence=1)
    send("gap", 1, base_sequence=9)
    send("begins late", 3, base_sequence=5)
    send("newer epoch", 1, producer_epoch=mine.epoch + 1)
    send("older epoch", 1, producer_epoch=mine.epoch - 1)
    send("other producer", 1, producer_id=mine.producer_id + 900_000)
    run.ask("unknown id", {**mine.produce_body(topic, 4), "transactional_id": run.name("unknown")})
    run.ask("empty id", {**mine.produce_body(topic, 4), "transactional_id": ""})
    plain: dict[str, Any] = {
        "producer_id": mine.producer_id,
        "producer_epoch": mine.epoch,
        "base_sequence": 2,
    }
    run.ask("outside of its transaction", produce_body(topic, {1: batch(b"v", **plain)}))
    run.ask(
        "two producers",
        produce_body(
            topic,
            {1: batch(b"v", transactional=True, **plain), 2: other.batch(topic, 2)},
            transactional_id=mine.transactional_id,
        ),
    )
    mixed = {1: batch(b"v", transactional=True, **plain), 5: batch(b"plain")}
    run.ask("beside a plain one", produce_body(topic, mixed, transactional_id=mine.transactional_id))
    run.ask("unknown partition", mine.produce_body(topic, 9))
    mine.describe("open")
    mine.end(version=end_version)
    send("after its end", 1)


@scenario(PRODUCE)
def transactions_right_behind_one_another(run: Run) -> None:
    """The first batch of the next transaction, right behind the end of the last one."""
    topic = run.topic()
    mine = producer(run)
    end_version = NEW_EPOCHS_FROM if run.version >= ADDED_FROM else 4
    for number in range(3):
        if run.version < ADDED_FROM:
            mine.add(topic)
        mine.produce(topic, version=run.version)
        answer = run.quietly(END_TXN, mine.end_body(committed=number % 2 == 0), version=end_version)
        mine.went_on(answer, end_version)
    mine.wait_complete()
    mine.describe("in the end")
