from __future__ import annotations

from collections.abc import Iterator

import pytest
from servers_for_tests import RedisServer


@pytest.fixture
def server() -> Iterator[RedisServer]:
    server = RedisServer()
    yield server
    server.close()
