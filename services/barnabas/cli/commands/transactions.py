"""`barnabas transactions`: kafka-transactions, and the states that `list` is asked for."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

from barnabas.cli.commands import flags, transaction_tables
from barnabas.cli.commands.flag_sets import spread
from barnabas.cli.commands.shell_command import ShellCommand
from barnabas.cli.refusal import Refused, usage
from barnabas.cli.text.output import OutputFormat, counted, say, show_rows

if TYPE_CHECKING:
    from barnabas.cli.balance.cluster_state import Node, Place
    from barnabas.cli.balance.late_transactions import Transaction
    from barnabas.cli.kafka.administration import Administration
    from barnabas.cli.kafka.partition_leaders import Brokers

app = typer.Typer(
    help="Transactions: list and describe them, find those that hang, end them (kafka-transactions).",
    add_completion=False,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
)

UNSEEN_NAMED_MAX: Final = 3
"""How many partitions a line names that nobody answered for."""

IdWord = Annotated[
    str | None,
    typer.Argument(metavar="[TRANSACTIONAL-ID]", help="The id; or --transactional-id.", show_default=False),
]
IdFlag = Annotated[
    str, typer.Option("--transactional-id", "--transactionalId", metavar="ID", help="The transactional id.")
]
PartitionFlag = Annotated[
    int | None, typer.Option("--partition", min=0, metavar="N", help="The partition.", show_default=False)
]
BrokerFlag = Annotated[
    int | None,
    typer.Option(
        "--broker-id", min=0, metavar="N", help="Ask this replica, not the leader.", show_default=False
    ),
]


@app.command("list", cls=ShellCommand)
@spread
def list_(
    duration_filter: Annotated[
        int | None,
        typer.Option(
            metavar="MS", help="Only those that are open for longer; below 0 all.", show_default=False
        ),
    ] = None,
    transactional_id_pattern: Annotated[
        str, typer.Option(metavar="REGEX", help="Only ids that match it as a whole.")
    ] = "",
    state: Annotated[str, typer.Option(metavar="STATE,...", help="Only ids in these states.")] = "",
    producer_id: Annotated[
        list[int] | None,
        typer.Option(min=0, metavar="N", help="Only the ids of these producers; repeatable."),
    ] = None,
    output: flags.Output = OutputFormat.table,
    *,
    cluster: flags.ClusterFlags,
) -> None:
    """The transactional ids that coordinators know, and their states."""
    from barnabas.cli.kafka.partition_leaders import read_brokers
    from barnabas.cli.kafka.transactions import Filters, list_transactions

    longer_than_ms = None if duration_filter is None else max(duration_filter, -1)
    filters = Filters(states_of(state), producer_id or (), longer_than_ms, transactional_id_pattern)
    with cluster.look() as administration:
        listed, silent = list_transactions(administration, read_brokers(administration).alive, filters)
    rows = [transaction_tables.listed_row(each) for each in listed]
    show_rows(rows, transaction_tables.LISTED, output, title="transactions")
    if silent:
        raise Refused(
            f"node {', '.join(map(str, silent))} gave no answer: what it coordinates is not shown; "
            "`barnabas nodes list` shows where it is"
        )


def states_of(text: str) -> tuple[str, ...]:
    """The states that `ongoing,PrepareCommit` names, as coordinators spell them."""
    from barnabas.cli.kafka.transactions import STATES

    known = {name.lower(): name for name in STATES}
    words = [word.strip() for word in text.split(",") if word.strip()]
    for word in words:
        if word.lower() not in known:
            raise usage(f"--state does not know {word!r}: it has {', '.join(STATES)}")
    return tuple(known[word.lower()] for word in words)


@app.command(cls=ShellCommand)
@spread
def describe(
    name: IdWord = None,
    transactional_id: IdFlag = "",
    output: flags.Output = OutputFormat.table,
    *,
    cluster: flags.ClusterFlags,
) -> None:
    """What its coordinator knows of a transactional id: state, since when, partitions that it has to tell."""
    transactional_id = one_id(name, transactional_id, "describe")
    with cluster.look() as administration:
        found = _described(administration, transactional_id)
    rows = [transaction_tables.transaction_row(found, now_ms())]
    show_rows(rows, transaction_tables.DESCRIBED, output, title="transaction")


@app.command("describe-producers", cls=ShellCommand)
@spread
def describe_producers(
    name: flags.TopicWord = None,
    topic: flags.Topic = "",
    partition: PartitionFlag = None,
    broker_id: BrokerFlag = None,
    output: flags.Output = OutputFormat.table,
    *,
    cluster: flags.ClusterFlags,
) -> None:
    """The producers that a partition remembers, and where their open transactions begin."""
    place = one_place(name, topic, partition, "describe-producers")
    from barnabas.cli.kafka.partition_leaders import find_leader, read_brokers
    from barnabas.cli.kafka.transactions import producers_of

    with cluster.look() as administration:
        brokers = read_brokers(administration)
        at = (
            find_leader(administration, brokers, place)
            if broker_id is None
            else known_broker(brokers, broker_id)
        )
        producers = producers_of(administration, at, place)
    producers.sort(key=lambda each: each.producer_id)
    rows = [transaction_tables.producer_row(each) for each in producers]
    show_rows(rows, transaction_tables.PRODUCERS, output, title=f"producers of {place[0]}-{place[1]}")


@app.command("find-hanging", cls=ShellCommand)
@spread
def find_hanging(
    name: flags.TopicWord = None,
    topic: flags.Topic = "",
    partition: PartitionFlag = None,
    broker_id: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="Ask this broker about what it has.", show_default=False),
    ] = None,
    max_transaction_timeout: Annotated[
        int, typer.Option(min=0, metavar="MINUTES", help="The longest that any may be open.")
    ] = 15,
    output: flags.Output = OutputFormat.table,
    *,
    cluster: flags.ClusterFlags,
) -> None:
    """Transactions that are open in partitions, and that no coordinator will end: readers of committed records wait."""
    topic = flags.one_topic(name, topic, "transactions find-hanging")
    if partition is not None and not topic:
        raise usage("--partition belongs to a topic: give --topic too")
    from barnabas.cli.kafka.cluster_reading import read_partitions
    from barnabas.cli.kafka.late_transactions import find_late
    from barnabas.cli.kafka.partition_leaders import no_partition, no_topic, read_brokers

    with cluster.look() as administration:
        brokers = read_brokers(administration)
        at = None if broker_id is None else known_broker(brokers, broker_id)
        partitions = read_partitions(administration, [topic] if topic else [])
        if topic and not partitions:
            raise no_topic(topic)
        if partition is not None:
            partitions = [each for each in partitions if each.number == partition]
            if not partitions:
                raise no_partition((topic, partition))
        if broker_id is not None:
            partitions = [each for each in partitions if broker_id in each.replicas]
        silent_since = now_ms() - max_transaction_timeout * 60_000
        search = find_late(administration, brokers, partitions, silent_since, at)
    rows = [transaction_tables.hanging_row(each, now_ms()) for each in search.found if each.is_hanging]
    show_rows(rows, transaction_tables.HANGING, output, title="hanging transactions")
    if search.unseen:
        raise Refused(not_seen(search.unseen))


def not_seen(places: Sequence[Place]) -> str:
    """That these were left out."""
    some = ", ".join(f"{topic}-{number}" for topic, number in places[:UNSEEN_NAMED_MAX])
    more = ", ..." if len(places) > UNSEEN_NAMED_MAX else ""
    return (
        f"{counted(len(places), 'partition')} could not be looked at ({some}{more}): "
        "`barnabas doctor` says who is away"
    )


@app.command(cls=ShellCommand)
@spread
def abort(
    name: flags.TopicWord = None,
    topic: flags.Topic = "",
    partition: PartitionFlag = None,
    start_offset: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Where the transaction begins.", show_default=False)
    ] = None,
    producer_id: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Its producer, in place of it.", show_default=False)
    ] = None,
    producer_epoch: Annotated[
        int | None,
        typer.Option(min=0, max=32_767, metavar="N", help="With --producer-id.", show_default=False),
    ] = None,
    coordinator_epoch: Annotated[
        int | None, typer.Option(min=-1, metavar="N", help="With --producer-id.", show_default=False)
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Also one that its coordinator is going to end.")
    ] = False,
    *,
    cluster: flags.ClusterFlags,
) -> None:
    """Abort a transaction that hangs, in one partition: readers of committed records leave out what it wrote there."""
    place = one_place(name, topic, partition, "abort")
    numbers = (producer_id, producer_epoch, coordinator_epoch)
    if (start_offset is None) == (numbers == (None, None, None)):
        raise usage("give --start-offset, or --producer-id, --producer-epoch and --coordinator-epoch")
    if start_offset is None and None in numbers:
        raise usage("--producer-id, --producer-epoch and --coordinator-epoch belong together")
    from barnabas.cli.kafka import transaction_ends

    with cluster.administer() as administration:
        if start_offset is not None:
            producer = transaction_ends.find_open(administration, place, start_offset)
            if not force:
                transaction_ends.check_hanging(administration, producer)
            numbers = (producer.producer_id, producer.producer_epoch, producer.coordinator_epoch)
        # Without a marker from before there is no epoch of a coordinator (-1), and any is new enough.
        transaction_ends.abort(administration, place, *(max(number or 0, 0) for number in numbers))
    say(
        f"the transaction of producer {numbers[0]} in {place[0]}-{place[1]} is aborted: readers of committed records "
        "go on"
    )


@app.command(cls=ShellCommand)
@spread
def terminate(
    name: IdWord = None,
    transactional_id: IdFlag = "",
    *,
    cluster: flags.ClusterFlags,
) -> None:
    """Abort the open transaction of a transactional id in all its partitions, and fence its producer."""
    transactional_id = one_id(name, transactional_id, "terminate")
    from barnabas.cli.kafka import transaction_ends

    with cluster.administer() as administration:
        found = _described(administration, transactional_id)
        if found.start_ms is None or found.state != "Ongoing":
            raise Refused(
                f"{transactional_id} has no open transaction: it is in the state {found.state}; nothing was done"
            )
        transaction_ends.terminate(administration, transactional_id)
    say(f"the transaction of {transactional_id} is aborted, and its producer may not go on")


def one_id(word: str | None, flag: str, action: str) -> str:
    """The transactional id that a word or a flag names."""
    if word and flag:
        raise usage(f"transactions {action} has one id, and here are two, {flag} and {word}")
    if not word and not flag:
        raise usage(
            f"transactions {action} needs a transactional id: `barnabas transactions list` shows them"
        )
    return word or flag


def one_place(word: str | None, flag: str, partition: int | None, action: str) -> Place:
    """The partition that the flags name."""
    topic = flags.one_topic(word, flag, f"transactions {action}")
    if not topic or partition is None:
        raise usage(f"transactions {action} needs a topic and --partition")
    return topic, partition


def known_broker(brokers: Brokers, broker_id: int) -> Node:
    """The broker of this id, which must be there to be asked."""
    for node in brokers.nodes:
        if node.node_id == broker_id and node.address is not None:
            return node
    raise Refused(f"no broker {broker_id} that is alive: `barnabas nodes list` shows those there are")


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def _described(administration: Administration, transactional_id: str) -> Transaction:
    from barnabas.cli.kafka.transactions import describe_transactions

    found = describe_transactions(administration, [transactional_id])
    if transactional_id not in found:
        raise Refused(
            f"no transactional id {transactional_id}: `barnabas transactions list` shows what there is"
        )
    return found[transactional_id]
