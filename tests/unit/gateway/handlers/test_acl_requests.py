"""Requests about ACLs, of which there are none: each is answered as by a Kafka without an authorizer."""

from __future__ import annotations

from typing import Any, Final

import pytest
from gateway_harness import Gateway

from barnabas.kernel.errors import ErrorCode

DESCRIBE_ACLS, CREATE_ACLS, DELETE_ACLS = 29, 30, 31
VERSIONS: Final = (1, 2, 3)

READER: Final = {"principal": "User:reader", "host": "*", "operation": 3, "permission_type": 3}
CREATION: Final = {"resource_type": 2, "resource_name": "orders", "resource_pattern_type": 3, **READER}
FILTER: Final = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}


async def ask(api_key: int, version: int, body: dict[str, Any]) -> Any:
    return await Gateway().ask(api_key, version, body)


@pytest.mark.parametrize("version", VERSIONS)
async def test_who_asks_for_acls_hears_that_there_is_no_authorizer(version: int) -> None:
    answer = await ask(DESCRIBE_ACLS, version, FILTER)
    assert (answer.error_code, answer.resources) == (ErrorCode.security_disabled, ())
    assert "no authorizer" in answer.error_message


@pytest.mark.parametrize("count", [0, 1, 3])
@pytest.mark.parametrize("version", VERSIONS)
async def test_each_acl_that_is_to_be_made_is_refused(version: int, count: int) -> None:
    answer = await ask(CREATE_ACLS, version, {"creations": [CREATION] * count})
    assert [result.error_code for result in answer.results] == [ErrorCode.security_disabled] * count
    assert all("no authorizer" in result.error_message for result in answer.results)


@pytest.mark.parametrize("count", [0, 1, 3])
@pytest.mark.parametrize("version", VERSIONS)
async def test_each_filter_of_acls_that_are_to_go_is_refused(version: int, count: int) -> None:
    answer = await ask(DELETE_ACLS, version, {"filters": [FILTER] * count})
    assert [result.error_code for result in answer.filter_results] == [ErrorCode.security_disabled] * count
    assert all("no authorizer" in result.error_message for result in answer.filter_results)
    assert all(result.matching_acls == () for result in answer.filter_results)
