"""AlterClientQuotas: the quotas of users, client ids and addresses (KIP-546, KIP-612)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from barnabas.controller.core.decision import Decision, failure
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.messages.controller_pb2 import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    ClientQuotaChange,
    ResourceResult,
)
from barnabas.messages.metadata_pb2 import ClientQuotaRecord, MetadataRecord
from barnabas.metadata.client_quotas import (
    CLIENT_ID,
    ENTITY_TYPES,
    IP,
    IP_QUOTAS,
    USER,
    USER_AND_CLIENT_QUOTAS,
    QuotaEntity,
    QuotaType,
    client_quota_key,
    entity_parts,
    quota_entity,
)
from barnabas.metadata.image import MetadataImage

FRACTION_MAX = 1e-6
"""How far from a whole number a whole number may be, as in Kafka: it travels as a float64."""


def alter_client_quotas(
    image: MetadataImage, request: AlterClientQuotasRequest
) -> Decision[AlterClientQuotasResponse]:
    """Decide on every entity by itself; all changes of one are made or none."""
    times = Counter(quota_entity(change.entity) for change in request.entries)
    records: list[MetadataRecord] = []
    results = []
    for change in request.entries:
        entity = quota_entity(change.entity)
        try:
            if times[entity] > 1:
                raise _invalid("The entity appears more than once: put all its changes in one entry.")
            records += _alter(image, entity, change)
            results.append(ResourceResult())
        except KafkaError as error:
            results.append(failure(error))
    stored = () if request.validate_only else tuple(records)
    return Decision(stored, AlterClientQuotasResponse(results=results))


def _alter(image: MetadataImage, entity: QuotaEntity, change: ClientQuotaChange) -> list[MetadataRecord]:
    keys = [operation.key for operation in change.operations]
    repeated = [key for key, count in Counter(keys).items() if count > 1]
    if repeated:
        raise _invalid(f"The quota {repeated[0]} appears more than once for one entity.")
    quotas = _quotas_of(entity)
    before = image.client_quotas.get(entity, {})
    after = dict(before)
    for operation in change.operations:
        if operation.remove:
            after.pop(operation.key, None)
        else:
            _check_value(quotas, operation.key, operation.value)
            after[operation.key] = operation.value
    if after == before:
        return []
    key = client_quota_key(entity)
    if not after:
        return [MetadataRecord(key=key)]
    return [
        MetadataRecord(key=key, client_quota=ClientQuotaRecord(entity=entity_parts(entity), values=after))
    ]


def _quotas_of(entity: QuotaEntity) -> Mapping[str, QuotaType]:
    """The quotas that the entity can have. Raises KafkaError INVALID_REQUEST for one that can have none."""
    if not entity:
        raise _invalid("The entity is empty: name a user, a client-id or an ip.")
    for kind, name in entity:
        if kind not in ENTITY_TYPES:
            raise _invalid(f"Unknown entity type {kind}: use user, client-id or ip.")
        if name == "":
            raise _invalid(f"The name of the {kind} is empty: leave it null for the default.")
    kinds = {kind for kind, _ in entity}
    if IP not in kinds:
        return USER_AND_CLIENT_QUOTAS
    if kinds & {USER, CLIENT_ID}:
        raise _invalid("An ip cannot be combined with a user or a client-id.")
    return IP_QUOTAS


def _check_value(quotas: Mapping[str, QuotaType], key: str, value: float) -> None:
    kind = quotas.get(key)
    if kind is None:
        raise _invalid(f"Unknown quota {key} for this entity: use {', '.join(quotas)}.")
    if not value > 0:  # also true of what is no number at all
        raise _invalid(f"Quota {key} must be greater than 0.")
    if kind is QuotaType.DOUBLE:
        return
    if value > kind.value:
        raise _invalid(f"The value of {key} is too large: at most {kind.value:.0f}.")
    if value % 1 > FRACTION_MAX:
        raise _invalid(f"{key} must be a whole number.")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_request, message)
