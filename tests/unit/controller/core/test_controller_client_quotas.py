"""AlterClientQuotas as a decision: what is stored, and what is refused and why."""

from __future__ import annotations

import math
from typing import Any

import pytest

from barnabas.controller.core.client_quotas import alter_client_quotas
from barnabas.kernel.errors import ErrorCode
from barnabas.messages import controller_pb2 as pb
from barnabas.messages.metadata_pb2 import QuotaEntityPart
from barnabas.metadata.client_quotas import quota_entity
from barnabas.metadata.image import MetadataImage

USER = {"user": "u"}
RATE = {"producer_byte_rate": 1024.0}


def change(entity: dict[str, str | None], quotas: dict[str, float | None]) -> pb.ClientQuotaChange:
    """None removes a quota."""
    return pb.ClientQuotaChange(
        entity=[QuotaEntityPart(type=kind, name=name) for kind, name in entity.items()],
        operations=[
            pb.ClientQuotaOperation(key=key, value=value or 0.0, remove=value is None)
            for key, value in quotas.items()
        ],
    )


def alter(
    image: MetadataImage, *changes: pb.ClientQuotaChange, validate_only: bool = False
) -> tuple[MetadataImage, list[int]]:
    request = pb.AlterClientQuotasRequest(entries=changes, validate_only=validate_only)
    decision = alter_client_quotas(image, request)
    codes = [result.error_code for result in decision.response.results]
    return image.apply(decision.records, image.revision + 1), codes


def test_set_change_and_remove() -> None:
    image, codes = alter(MetadataImage(), change(USER, {**RATE, "request_percentage": 0.5}))
    assert codes == [0]
    assert dict(image.client_quotas) == {(("user", "u"),): {**RATE, "request_percentage": 0.5}}
    image, _ = alter(image, change(USER, {"producer_byte_rate": 2.0, "request_percentage": None}))
    assert dict(image.client_quotas) == {(("user", "u"),): {"producer_byte_rate": 2.0}}
    image, _ = alter(image, change(USER, {"producer_byte_rate": None}))
    assert not image.client_quotas
    assert not image.records, "nothing is kept of an entity without quotas"


@pytest.mark.parametrize(
    ("entity", "quotas"),
    [
        ({"user": None}, RATE),
        ({"client-id": None}, RATE),
        ({"user": None, "client-id": None}, RATE),
        ({"user": "u", "client-id": "c"}, {"controller_mutation_rate": 0.1}),
        ({"ip": "1.2.3.4"}, {"connection_creation_rate": 5.0}),
        ({"ip": None}, {"connection_creation_rate": 5.0}),
        (USER, {"request_percentage": math.inf}),
        (USER, {"no_such_quota": None}),
        (USER, {}),
    ],
)
def test_accepted(entity: dict[str, str | None], quotas: dict[str, float | None]) -> None:
    assert alter(MetadataImage(), change(entity, quotas))[1] == [0]


@pytest.mark.parametrize(
    ("entity", "quotas"),
    [
        ({}, RATE),
        ({"nope": "x"}, RATE),
        ({"user": ""}, RATE),
        ({"ip": "1.2.3.4", "user": "u"}, {"connection_creation_rate": 5.0}),
        ({"ip": "1.2.3.4"}, RATE),
        (USER, {"connection_creation_rate": 5.0}),
        (USER, {"nope": 1.0}),
        (USER, {"producer_byte_rate": 0.0}),
        (USER, {"producer_byte_rate": -1.0}),
        (USER, {"producer_byte_rate": 1.5}),
        (USER, {"producer_byte_rate": 1e19}),
        (USER, {"producer_byte_rate": math.inf}),
        (USER, {"request_percentage": math.nan}),
        ({"ip": "1.1.1.1"}, {"connection_creation_rate": 3e9}),
    ],
)
def test_refused(entity: dict[str, str | None], quotas: dict[str, float | None]) -> None:
    image, codes = alter(MetadataImage(), change(entity, quotas))
    assert codes == [ErrorCode.invalid_request]
    assert not image.records


def test_entities_do_not_touch_one_another_and_each_is_changed_whole_or_not_at_all() -> None:
    image, codes = alter(MetadataImage(), change(USER, {**RATE, "nope": 1.0}), change({"user": "v"}, RATE))
    assert codes == [ErrorCode.invalid_request, 0]
    assert list(image.client_quotas) == [(("user", "v"),)]


def test_an_entity_and_a_quota_are_named_once() -> None:
    twice: Any = change(USER, RATE)
    twice.operations.append(pb.ClientQuotaOperation(key="producer_byte_rate", value=2))
    assert alter(MetadataImage(), twice)[1] == [ErrorCode.invalid_request]
    image, codes = alter(MetadataImage(), change(USER, RATE), change(USER, {"consumer_byte_rate": 1.0}))
    assert codes == [ErrorCode.invalid_request] * 2
    assert not image.client_quotas


def test_validate_only_and_no_change_store_nothing() -> None:
    image, codes = alter(MetadataImage(), change(USER, RATE), validate_only=True)
    assert (codes, len(image.records)) == ([0], 0)
    image, _ = alter(image, change(USER, RATE))
    request = pb.AlterClientQuotasRequest(entries=[change(USER, RATE)])
    assert not alter_client_quotas(image, request).records


def test_the_order_of_an_entity_does_not_matter() -> None:
    one, other = {"user": "u", "client-id": "c"}, {"client-id": "c", "user": "u"}
    image, _ = alter(MetadataImage(), change(one, RATE))
    image, _ = alter(image, change(other, {"producer_byte_rate": 2.0}))
    assert {entity: dict(quotas) for entity, quotas in image.client_quotas.items()} == {
        quota_entity(change(one, {}).entity): {"producer_byte_rate": 2.0}
    }
