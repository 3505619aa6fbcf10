"""The marker `nightly`, and the lines that tests want said at the end of a run, whichever worker ran them."""

from collections.abc import Iterator
from typing import Any

import pytest
from kvspec_diff.batched.client import Client
from kvspec_diff.recipes import EngineError

SAID = "say"
"""The property by which a test hands over a line."""


class Releases:
    """An engine's releases that are installed. A worker takes seconds to start: unmodified ones are for all tests."""

    def __init__(self, engine: str) -> None:
        self.engine = engine
        self.running: dict[str, Client] = {}

    def client(self, version: str, *plants: str) -> Client:
        """A worker of its own."""
        try:
            return Client(self.engine, version, plants)
        except EngineError as error:
            pytest.skip(str(error))

    def unmodified(self, version: str) -> Client:
        """One without planted faults."""
        if version not in self.running:
            self.running[version] = self.client(version)
        return self.running[version]

    def close(self) -> None:
        """End the unmodified ones."""
        for client in self.running.values():
            client.close()


@pytest.fixture(scope="session")
def vllm() -> Iterator[Releases]:
    releases = Releases("vllm")
    yield releases
    releases.close()


@pytest.fixture(scope="session")
def mlx_lm() -> Iterator[Releases]:
    releases = Releases("mlx-lm")
    yield releases
    releases.close()


@pytest.fixture(scope="session")
def transformers() -> Iterator[Releases]:
    releases = Releases("transformers")
    yield releases
    releases.close()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "nightly: takes many minutes; left out unless asked for by `-m nightly`")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "nightly" in config.getoption("markexpr"):
        return
    late = [item for item in items if item.get_closest_marker("nightly")]
    if late:
        config.hook.pytest_deselected(items=late)
        items[:] = [item for item in items if not item.get_closest_marker("nightly")]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    reports = [report for reports in terminalreporter.stats.values() for report in reports]
    lines = [
        str(value)
        for report in reports
        if getattr(report, "when", "") == "call"
        for name, value in report.user_properties
        if name == SAID
    ]
    if lines:
        terminalreporter.section("compared, planted and failed on purpose")
        for line in sorted(lines):
            terminalreporter.write_line(line)
