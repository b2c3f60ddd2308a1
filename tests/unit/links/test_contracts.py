"""Both ends of every link have all calls of their contract in protos/: a forgotten one would be refused as unknown."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.descriptor import ServiceDescriptor

from barnabas.controller.servicer import ControllerServicer
from barnabas.coordinator.groups.servicer import CoordinatorServicer
from barnabas.coordinator.transactions.servicer import TransactionsServicer
from barnabas.links.controller_link import ControllerLink, ControllerService
from barnabas.links.coordinator_link import CoordinatorLink, CoordinatorService
from barnabas.links.storage_link import RemoteStorageLink, StorageLink, StorageService
from barnabas.links.transactions_link import TransactionsLink, TransactionsService
from barnabas.messages import controller_pb2, coordinator_pb2, storage_pb2, transactions_pb2
from barnabas.storage.servicer import StorageServicer

CONTROLLER = controller_pb2.DESCRIPTOR.services_by_name["Controller"]
COORDINATOR = coordinator_pb2.DESCRIPTOR.services_by_name["GroupCoordinator"]
TRANSACTIONS = transactions_pb2.DESCRIPTOR.services_by_name["TransactionCoordinator"]
STORAGE = storage_pb2.DESCRIPTOR.services_by_name["Storage"]


def calls_of(end: type[Any]) -> set[str]:
    """The methods that are named as calls are, with a capital."""
    return {name for part in end.__mro__ for name in vars(part) if name[0].isupper()}


@pytest.mark.parametrize(
    ("contract", "link", "service", "servicer"),
    [
        (CONTROLLER, ControllerLink, ControllerService, ControllerServicer),
        (COORDINATOR, CoordinatorLink, CoordinatorService, CoordinatorServicer),
        (TRANSACTIONS, TransactionsLink, TransactionsService, TransactionsServicer),
        (STORAGE, RemoteStorageLink, StorageService, StorageServicer),
    ],
    ids=["controller", "coordinator", "transactions", "storage"],
)
def test_every_call_has_both_ends(
    contract: ServiceDescriptor, link: type[Any], service: type[Any], servicer: type[Any]
) -> None:
    every = set(contract.methods_by_name)
    coalesced = {"Append", "Fetch", "Calls"} & every
    assert calls_of(link) == calls_of(service) == calls_of(servicer) == every - coalesced


def test_every_coalesced_stream_has_both_ends() -> None:
    """They are no calls but parts of the ends, which the type checker holds to the parts' own protocols."""
    parts = {"Append": "appends", "Fetch": "fetches"}
    followed = {"Replicate"}
    assert {method.name for method in STORAGE.methods if method.client_streaming} == set(parts) | followed
    assert set(parts.values()) <= vars(StorageLink).keys() & vars(StorageService).keys()
