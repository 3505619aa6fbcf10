"""Programs: steps of a few requests, drawn for a configuration; the worker's twin of them is `vllm_program`."""

import random

from kvspec_diff.batched.bounds import Step
from kvspec_diff.capacity.configuration import Configuration

LATE = 2
"""Steps of one request that have not retired, at most."""


def chunk(configuration: Configuration, start: int, prompt: int, wanted: int) -> int:
    """Tokens of the prompt's next chunk: with a state of mode `align` it ends at a block's end or the prompt's."""
    end = min(start + wanted, prompt)
    for kind, size, _ in configuration.groups:
        if kind == "align" and (end < prompt or start < prompt // size * size):
            end = min(max(end // size * size, (start // size + 1) * size), prompt)
    return end - start


def draw(configuration: Configuration, rng: random.Random) -> list[Step]:
    """A program in which every step retires and every request finishes."""
    longest, size = configuration.length, configuration.groups[0][1]
    steps: list[Step] = []
    shared = rng.randint(0, longest)
    flying = dict.fromkeys(range(rng.choice((1, 1, 2, 3))), 0)
    for request in flying:
        prompt = rng.randint(1, longest)
        steps.append(("admit", request, prompt, min(shared, prompt), rng.randint(1, max(prompt, 2 * size))))
        flying[request] += 1
        for _ in range(rng.randint(1, 5)):
            mover = rng.choice([other for other in flying if other <= request])
            while flying[mover] >= rng.randint(1, LATE):
                steps.append(("retire", mover, rng.randint(0, configuration.drafts)))
                flying[mover] -= 1
            drafts = rng.randint(0, configuration.drafts) if rng.random() < 0.3 else configuration.drafts
            steps.append(("step", mover, rng.randint(1, max(longest // 2, 1)), drafts))
            flying[mover] += 1
    for request, late in flying.items():
        steps.extend(("retire", request, rng.randint(0, configuration.drafts)) for _ in range(late))
        steps.append(("finish", request))
    return steps
