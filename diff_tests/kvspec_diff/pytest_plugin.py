"""The pytest plugin: options for `kvspec_diff.conformance`. It imports nothing until one of them is used."""

from typing import Any

import pytest

PROFILES = ("pr", "nightly", "fleet")
"""The names in `kvspec_diff.profiles.EXAMPLES`."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options, in a group of their own."""
    group = parser.getgroup("kvspec", "kvspec: conformance of allocators")
    group.addoption(
        "--kvspec-profile", choices=PROFILES, default=None, help="how many programs are tried (default: pr)"
    )
    group.addoption(
        "--kvspec-seconds", type=positive, metavar="N", default=None, help="bulk programs for N seconds a class instead"
    )
    group.addoption("--kvspec-seed", type=natural, metavar="N", default=None, help="what the programs are drawn from")
    group.addoption(
        "--kvspec-traces", metavar="DIR", default=None, help="where traces of failures go (default: kvspec-traces)"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Make kvspec's Hypothesis profiles known when one is asked for, and never over others of the same name."""
    asked = (config.getoption("--kvspec-profile"), config.getoption("--hypothesis-profile", default=None))
    if not any(name in PROFILES for name in asked):
        return
    from hypothesis import settings
    from hypothesis.errors import InvalidArgument

    from kvspec_diff.profiles import register

    for name in PROFILES:
        try:
            settings.get_profile(name)
        except InvalidArgument:
            continue
        return
    register()


def natural(text: str) -> int:
    """A seed."""
    number = int(text)
    if number < 0:
        raise ValueError(text)
    return number


def positive(text: str) -> float:
    """Seconds."""
    number = float(text)
    if not 0 < number < float("inf"):
        raise ValueError(text)
    return number


def option(config: Any, name: str) -> Any:
    """What an option of this plugin was given; None without it, and where the plugin is not loaded."""
    return config.getoption(f"kvspec_{name}", default=None)
