"""`barnabas groups`: kafka-consumer-groups, and the list of kafka-groups."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final

import typer

from barnabas.cli.commands import flags
from barnabas.cli.commands.flag_sets import spread
from barnabas.cli.commands.shell_command import OptionalValue, ShellCommand
from barnabas.cli.refusal import Refused, usage
from barnabas.cli.text.output import Column, OutputFormat, say, show_rows

if TYPE_CHECKING:
    from barnabas.cli.commands.group_reset import Way
    from barnabas.cli.kafka.connection import Connection

STATE_NAMES: Final = (
    "unknown",
    "preparingrebalance",
    "completingrebalance",
    "assigning",
    "reconciling",
    "stable",
    "dead",
    "empty",
    "notready",
)
TYPE_NAMES: Final = ("unknown", "consumer", "classic", "share", "streams")
DELETED_COLUMNS: Final = (
    Column("group", "GROUP", "cyan"),
    Column("topic", "TOPIC", "cyan"),
    Column("partition", "PARTITION", is_number=True),
    Column("status", "STATUS"),
)


ActionFlag = Annotated[
    str | None,
    typer.Argument(
        help="list, describe, delete, delete-offsets or reset-offsets; or as flags.", show_default=False
    ),
]
NamesFlag = Annotated[
    list[str] | None,
    typer.Argument(metavar="[GROUP]...", help="The groups; or --group.", show_default=False),
]
ListFlag = Annotated[bool, typer.Option("--list", help="List the groups.")]
DescribeFlag = Annotated[bool, typer.Option("--describe", help="Show offsets, members or state.")]
DeleteFlag = Annotated[bool, typer.Option("--delete", help="Delete groups without members.")]
DeleteOffsetsFlag = Annotated[bool, typer.Option("--delete-offsets", help="Forget what was committed.")]
ResetOffsetsFlag = Annotated[bool, typer.Option("--reset-offsets", help="Move what was committed.")]
GroupFlag = Annotated[list[str] | None, typer.Option(metavar="GROUP", help="A group; repeatable.")]
AllGroupsFlag = Annotated[bool, typer.Option("--all-groups", help="Every group.")]
OffsetsFlag = Annotated[bool, typer.Option("--offsets", help="With --describe: offsets and lag (default).")]
MembersFlag = Annotated[bool, typer.Option("--members", help="With --describe: the members.")]
StateFlag = Annotated[
    bool, typer.Option("--state", help="With --describe: the group as a whole; with --list: its state.")
]
InStateFlag = Annotated[
    str,
    typer.Option(metavar="STATE,...", help="With --list: groups in these states only; as --state STATE,..."),
]
TypesFlag = Annotated[
    str,
    typer.Option(
        "--of-type",
        "--group-type",
        metavar="TYPE,...",
        help="With --list: groups of these types only (classic, consumer); as --type TYPE,...",
    ),
]
WithTypeFlag = Annotated[bool, typer.Option("--type", help="With --list: the groups' types.")]
ConsumerFlag = Annotated[bool, typer.Option("--consumer", hidden=True, help="What is listed anyway.")]
ValidateRegexFlag = Annotated[
    str, typer.Option(metavar="REGEX", help="Say whether this is an expression for SubscriptionPattern.")
]
VerboseFlag = Annotated[bool, typer.Option("--verbose", help="More columns.")]
TopicFlag = Annotated[
    list[str] | None,
    typer.Option(metavar="TOPIC[:0,1]", help="For resets and deletions; repeatable."),
]
AllTopicsFlag = Annotated[bool, typer.Option("--all-topics", help="Every topic of the group.")]
ToEarliestFlag = Annotated[bool, typer.Option("--to-earliest", help="Reset to the first record.")]
ToLatestFlag = Annotated[bool, typer.Option("--to-latest", help="Reset to the end.")]
ToCurrentFlag = Annotated[bool, typer.Option("--to-current", help="Reset to what is committed now.")]
ToOffsetFlag = Annotated[int | None, typer.Option(min=0, help="Reset to this offset.")]
ShiftByFlag = Annotated[int | None, typer.Option(help="Reset by so many records, back with a minus.")]
ToDatetimeFlag = Annotated[
    str, typer.Option(metavar="TIME", help="Reset to a time: 2026-01-31T12:00:00, 10m ago.")
]
ByDurationFlag = Annotated[str, typer.Option(metavar="PT10M", help="Reset back by a time.")]
FromFileFlag = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Reset to a CSV of [group,]topic,partition,offset.")
]
DryRunFlag = Annotated[bool, typer.Option("--dry-run", help="Show the new offsets only (default).")]
ExecuteFlag = Annotated[bool, typer.Option("--execute", help="Do it.")]
ExportFlag = Annotated[bool, typer.Option("--export", help="Write the new offsets as CSV.")]
TimeoutFlag = Annotated[int, typer.Option(metavar="MS", min=1, help="Wait so long for the cluster.")]


ACTIONS: Final = ("list", "describe", "delete", "delete-offsets", "reset-offsets")


@dataclass(frozen=True)
class ViewFlags:
    """What of the groups is shown, and which of them."""

    offsets: OffsetsFlag = False
    members: MembersFlag = False
    state: StateFlag = False
    in_state: InStateFlag = ""
    type_: WithTypeFlag = False
    types: TypesFlag = ""
    consumer: ConsumerFlag = False
    verbose: VerboseFlag = False


@dataclass(frozen=True)
class ResetFlags:
    """Where offsets go, and whether it is done."""

    to_earliest: ToEarliestFlag = False
    to_latest: ToLatestFlag = False
    to_current: ToCurrentFlag = False
    to_offset: ToOffsetFlag = None
    shift_by: ShiftByFlag = None
    to_datetime: ToDatetimeFlag = ""
    by_duration: ByDurationFlag = ""
    from_file: FromFileFlag = None
    dry_run: DryRunFlag = False
    execute: ExecuteFlag = False
    export: ExportFlag = False

    def way(self) -> Way:
        """The flags that say where to."""
        from barnabas.cli.commands.group_reset import Way

        return Way(
            self.to_earliest,
            self.to_latest,
            self.to_current,
            self.to_offset,
            self.shift_by,
            self.to_datetime,
            self.by_duration,
        )


@spread
def groups(
    view: ViewFlags,
    reset: ResetFlags,
    action: ActionFlag = None,
    names: NamesFlag = None,
    list_: ListFlag = False,
    describe: DescribeFlag = False,
    delete: DeleteFlag = False,
    delete_offsets: DeleteOffsetsFlag = False,
    reset_offsets: ResetOffsetsFlag = False,
    group: GroupFlag = None,
    all_groups: AllGroupsFlag = False,
    validate_regex: ValidateRegexFlag = "",
    topic: TopicFlag = None,
    all_topics: AllTopicsFlag = False,
    timeout: TimeoutFlag = 30_000,
    output: flags.Output = OutputFormat.table,
    bootstrap_server: flags.BootstrapServer = "",
    command_config: flags.CommandConfig = None,
    command_property: flags.CommandProperty = None,
) -> None:
    """List, describe, delete and reset consumer groups (kafka-consumer-groups)."""
    if validate_regex:
        from barnabas.cli.text.re2 import check_re2

        check_re2(validate_regex)
        print(f"{validate_regex} is a valid RE2 expression")  # noqa: T201
        return
    given = zip(ACTIONS, (list_, describe, delete, delete_offsets, reset_offsets), strict=True)
    what = flags.chosen(dict(given), action, "groups")
    if reset.export and what != "reset-offsets":
        raise usage(f"--export belongs to groups --reset-offsets, not to --{what}")
    named = [*(group or ()), *(names or ())]
    check_named(what, named, is_all=all_groups)
    connection = flags.connect(bootstrap_server, command_config, with_timeout(timeout, command_property))
    from barnabas.cli.commands import group_reset, group_tables

    named = group_tables.group_names(connection) if all_groups else named
    if what == "list":
        with_columns = view.state or view.type_ or view.verbose
        group_tables.list_groups(connection, view.in_state, view.types, output, with_columns=with_columns)
    elif what == "describe":
        shown = view_of(view.offsets, view.members, view.state)
        group_tables.describe_groups(connection, named, shown, output, is_verbose=view.verbose)
    elif what == "delete":
        _delete(connection, named)
    elif what == "delete-offsets":
        _delete_offsets(connection, named, topic or (), output)
    else:
        scope = group_reset.Scope(tuple(topic or ()), all_topics, reset.from_file)
        is_executed = reset.execute and not reset.dry_run
        group_reset.reset(
            connection, named, scope, reset.way(), output, is_executed=is_executed, is_exported=reset.export
        )


class GroupsCommand(ShellCommand):
    """`--state` and `--type` stand alone, or with what to list."""

    optional_values: ClassVar = {
        "--state": OptionalValue("--in-state", ("--state",), lambda text: _are_words(text, STATE_NAMES)),
        "--type": OptionalValue("--of-type", ("--type",), lambda text: _are_words(text, TYPE_NAMES)),
    }

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, listed_by(args))


def listed_by(arguments: Sequence[str]) -> list[str]:
    """The same where groups are listed: the word behind --state or --type is its value then, whatever it is."""
    words = list(arguments)
    if "--list" not in words and "list" not in words[:1]:
        return words
    valued = {flag: found.valued for flag, found in GroupsCommand.optional_values.items()}
    for at, (word, following) in enumerate(itertools.pairwise(words)):
        if word in valued and not following.startswith("-") and following not in ACTIONS:
            words[at] = valued[word]
    return words


def _are_words(text: str, known: Sequence[str]) -> bool:
    return all(word.strip().lower() in known for word in text.split(","))


app = flags.application(groups, GroupsCommand)


def with_timeout(milliseconds: int, properties: Sequence[str] | None) -> list[str]:
    """The client properties, which go before --timeout."""
    return [f"socket.timeout.ms={milliseconds}", *(properties or ())]


def check_named(what: str, names: Sequence[str], *, is_all: bool) -> None:
    """Raise Refused unless groups are named one way, where the action needs any."""
    if what != "list" and bool(names) == is_all:
        raise usage(f"groups --{what} needs --group or --all-groups")


def view_of(offsets: bool, members: bool, state: bool) -> str:
    """What --describe shows; Refused when more than one thing is asked for."""
    if offsets + members + state > 1:
        raise usage("one of --offsets, --members and --state at a time")
    return "state" if state else "members" if members else "offsets"


def _delete(connection: Connection, names: Sequence[str]) -> None:
    from barnabas.cli.kafka import answers

    if not names:
        return
    admin = connection.admin()
    deleted, failures = answers.sorted_out(admin.delete_consumer_groups(list(names)))
    for name in deleted:
        say(f"deleted group {name}")
    answers.raise_failures(failures, "cannot delete group")


def _delete_offsets(
    connection: Connection, names: Sequence[str], topics: Sequence[str], output: OutputFormat
) -> None:
    from barnabas.cli.kafka import requests
    from barnabas.cli.kafka.topics import parse_topic_partitions
    from barnabas.kernel.errors import ErrorCode

    if not topics:
        raise usage("groups --delete-offsets needs --topic")
    admin = connection.admin()
    cluster = connection.cluster(admin)
    wanted: dict[str, list[int]] = {}
    for text in topics:
        for topic, numbers in parse_topic_partitions(text).items():
            if topic not in cluster.topics and numbers is None:
                raise Refused(f"no topic {topic}: `barnabas topics --list` shows what there is")
            wanted[topic] = sorted(cluster.topics[topic].partitions if numbers is None else numbers)
    failed = 0
    rows = []
    for name in names:
        for (topic, partition), code in requests.delete_group_offsets(connection, name, wanted).items():
            status = "deleted" if code == 0 else ErrorCode(code).name.upper()
            failed += code != 0
            rows.append({"group": name, "topic": topic, "partition": partition, "status": status})
    show_rows(rows, DELETED_COLUMNS, output, title="deleted offsets")
    if failed:
        raise Refused(f"{failed} of {len(rows)} offsets were not deleted: stop the group's consumers first")
