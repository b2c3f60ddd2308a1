"""Client quotas: altered, described."""

from __future__ import annotations

from typing import Any

from golden_session import Run, scenario

DESCRIBE_CLIENT_QUOTAS, ALTER_CLIENT_QUOTAS = 48, 49
EXACT, DEFAULT, ANY = 0, 1, 2

Entity = dict[str, str | None]


def entry(entity: Entity, *ops: tuple[str, float | None]) -> dict[str, Any]:
    return {
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()],
        "ops": [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in ops],
    }


@scenario(ALTER_CLIENT_QUOTAS)
def alter_client_quotas(run: Run) -> None:
    user = run.name("user")

    def alter(step: str, *entries: dict[str, Any], validate_only: bool = False) -> None:
        run.ask(step, {"entries": entries, "validate_only": validate_only})

    alter("user", entry({"user": user}, ("producer_byte_rate", 1000.0), ("request_percentage", 50.5)))
    alter("user and client", entry({"user": user, "client-id": "c"}, ("consumer_byte_rate", 2000.0)))
    alter("default client of a user", entry({"user": user, "client-id": None}, ("consumer_byte_rate", 3.0)))
    alter("validated only", entry({"user": user}, ("consumer_byte_rate", 7.0)), validate_only=True)
    alter("removed", entry({"user": user}, ("request_percentage", None)))
    alter("removed, never set", entry({"user": run.name("other")}, ("request_percentage", None)))
    alter("unknown key", entry({"user": user}, ("no_such_rate", 1.0)))
    alter("unknown entity", entry({"planet": "mars"}, ("producer_byte_rate", 1.0)))
    alter("no entity", entry({}, ("producer_byte_rate", 1.0)))
    alter("empty name", entry({"user": ""}, ("producer_byte_rate", 1.0)))
    alter("negative", entry({"user": user}, ("producer_byte_rate", -1.0)))
    alter("zero", entry({"user": user}, ("producer_byte_rate", 0.0)))
    alter("not whole", entry({"user": user}, ("producer_byte_rate", 1.5)))
    alter("address", entry({"ip": "10.1.1.1"}, ("connection_creation_rate", 5.0)))
    alter("address, wrong key", entry({"ip": "10.1.1.1"}, ("producer_byte_rate", 5.0)))
    alter("no address", entry({"ip": "nowhere at all"}, ("connection_creation_rate", 5.0)))
    alter("address and user", entry({"ip": "10.1.1.1", "user": user}, ("connection_creation_rate", 5.0)))
    alter("user, address's key", entry({"user": user}, ("connection_creation_rate", 5.0)))
    alter("nothing to do", entry({"user": user}))
    alter(
        "good and bad",
        entry({"user": run.name("good")}, ("producer_byte_rate", 9.0)),
        entry({"planet": "mars"}, ("producer_byte_rate", 1.0)),
    )
    alter("nothing")
    alter("address gone", entry({"ip": "10.1.1.1"}, ("connection_creation_rate", None)))
    alter("good gone", entry({"user": run.name("good")}, ("producer_byte_rate", None)))
    run.settle()
    exact = {"entity_type": "user", "match_type": EXACT, "match": user}
    run.ask("described", {"components": [exact], "strict": False}, api=DESCRIBE_CLIENT_QUOTAS)
    alter("user gone", entry({"user": user}, ("producer_byte_rate", None)))
    alter(
        "clients gone",
        entry({"user": user, "client-id": "c"}, ("consumer_byte_rate", None)),
        entry({"user": user, "client-id": None}, ("consumer_byte_rate", None)),
    )
    run.settle()


@scenario(DESCRIBE_CLIENT_QUOTAS)
def describe_client_quotas(run: Run) -> None:
    user = run.name("user")
    entries = [
        entry({"user": user}, ("producer_byte_rate", 1.0)),
        entry({"user": None}, ("producer_byte_rate", 2.0)),
        entry({"user": user, "client-id": "c"}, ("producer_byte_rate", 3.0)),
        entry({"client-id": "c"}, ("producer_byte_rate", 4.0)),
    ]
    run.quietly(ALTER_CLIENT_QUOTAS, {"entries": entries, "validate_only": False})
    run.settle()

    def describe(step: str, *components: tuple[str, int, str | None], strict: bool = False) -> None:
        rows = [
            {"entity_type": kind, "match_type": match_type, "match": match}
            for kind, match_type, match in components
        ]
        run.ask(step, {"components": rows, "strict": strict})

    describe("everything")
    describe("everything, strictly", strict=True)
    describe("user", ("user", EXACT, user))
    describe("user, strictly", ("user", EXACT, user), strict=True)
    describe("default user", ("user", DEFAULT, None))
    describe("any user", ("user", ANY, None))
    describe("any user, strictly", ("user", ANY, None), strict=True)
    describe("user and client", ("user", EXACT, user), ("client-id", EXACT, "c"))
    describe("any client", ("client-id", ANY, None))
    describe("unknown user", ("user", EXACT, "nobody"))
    describe("unknown entity", ("planet", EXACT, "mars"))
    describe("empty entity", ("", EXACT, "x"))
    describe("entity twice", ("user", EXACT, user), ("user", ANY, None))
    describe("exact without a name", ("user", EXACT, None))
    describe("any with a name", ("user", ANY, "x"))
    describe("default with a name", ("user", DEFAULT, "x"))
    describe("unknown match type", ("user", 7, None))
    describe("address and user", ("ip", ANY, None), ("user", ANY, None))
    gone = [{**row, "ops": [{"key": "producer_byte_rate", "value": 0.0, "remove": True}]} for row in entries]
    run.quietly(ALTER_CLIENT_QUOTAS, {"entries": gone, "validate_only": False})
    run.settle()
