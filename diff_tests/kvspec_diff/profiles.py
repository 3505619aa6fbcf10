"""Hypothesis profiles. Hypothesis loads a profile of its own, `ci`, wherever the variable CI is set: derandomized and
without a database, it would try the same examples in every run forever. These replace it, and are loaded by name:

- `pr`: fresh examples in every run, few enough for every change; prints the blob that reproduces a failure.
- `nightly`: ten times as many.
- `fleet`: many machines at once for hours; no database, since there is nobody to share it with.

No deadline anywhere: a slow machine is no failure. The example database is a cache; what was found lasts as a trace.
"""

from hypothesis import HealthCheck, settings

EXAMPLES = {"pr": 100, "nightly": 1_000, "fleet": 20_000}
"""Examples a property, by profile."""


def register() -> None:
    """Make the profiles known to Hypothesis; loads none."""
    common = settings(
        settings.get_profile("default"),
        deadline=None,
        derandomize=False,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow],
    )
    for name, examples in EXAMPLES.items():
        settings.register_profile(name, common, max_examples=examples)
    settings.register_profile("fleet", settings.get_profile("fleet"), database=None)


def load(name: str) -> None:
    """Register the profiles and load the one called `name`; `KeyError` for another name."""
    if name not in EXAMPLES:
        raise KeyError(f"no profile {name!r}; there are {', '.join(EXAMPLES)}")
    register()
    settings.load_profile(name)
