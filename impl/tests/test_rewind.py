"""A pool that is put back to an earlier backup goes on as it did then, whatever happened in between (D6)."""

import copy
import random
from typing import Any

import torch
from kvspec.operations import Misuse, Refused
from kvspec_reference import PagePool as Reference
from kvspec_torch import PagePool


def step(rng: random.Random, reference: Reference, pool: PagePool) -> None:
    """Something that publishes and evicts often, done on both, with the same pages."""
    held = [page for page, n in reference.refs.items() if n]
    cached = list(reference.cached)
    match rng.choice(("allocate", "publish", "release", "release", "share", "evict")):
        case "allocate" if reference.available:
            assert pool.allocate(1).tolist() == list(reference.allocate(1))
        case "publish" if held:
            both(reference, pool, "publish", [rng.choice(held)])
        case "release" if held:
            both(reference, pool, "release", rng.sample(held, rng.randint(1, len(held))))
        case "share" if cached:
            both(reference, pool, "share", [rng.choice(cached)])
        case "evict":
            n = rng.randint(0, 3)
            pages = pool.evict(n)
            assert pages[pages > 0].tolist() == list(reference.evict(n))


def both(reference: Reference, pool: PagePool, name: str, pages: list[int]) -> None:
    getattr(reference, name)(pages)
    getattr(pool, name)(torch.tensor(pages))


def state(reference: Reference) -> dict[str, Any]:
    refs = {page: n for page, n in reference.refs.items() if n}
    return {"blank": list(reference.blank), "cached": list(reference.cached), "refs": refs}


def test_a_pool_is_rewound(path: str) -> None:
    rewound = 0
    for seed in range(20):
        rng = random.Random(seed)
        reference, pool = Reference(6), PagePool(6, path=path)  # type: ignore[arg-type]
        kept = copy.deepcopy(reference), pool.backup()
        for _ in range(120):
            step(rng, reference, pool)
            if rng.random() < 0.1:
                kept = copy.deepcopy(reference), pool.backup()
            elif rng.random() < 0.1:
                reference = copy.deepcopy(kept[0])
                pool.restore(kept[1])
                rewound += 1
            shown = pool.snapshot()
            assert {name: shown[name] for name in ("blank", "cached", "refs")} == state(reference)
        pool.check()
    assert rewound > 100


def test_refusals_and_misuse_are_not_drawn() -> None:
    """What is drawn is right on the reference, or the test above would prove less than it says."""
    reference, pool = Reference(6), PagePool(6)
    for seed in range(300):
        try:
            step(random.Random(seed), reference, pool)
        except (Misuse, Refused) as error:
            raise AssertionError(seed) from error
