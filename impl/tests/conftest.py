"""Both paths, on the CPU."""

import pytest


@pytest.fixture(params=["host", "device"])
def path(request: pytest.FixtureRequest) -> str:
    return str(request.param)
