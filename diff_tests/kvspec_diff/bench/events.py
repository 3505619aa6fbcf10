"""The compiled monitor against the one written by hand, on the events of generated programs."""

import gc
from collections.abc import Callable
from itertools import islice
from time import thread_time_ns
from typing import NamedTuple

from kvspec_diff.bench import by_hand
from kvspec_diff.caller import Action, Caller
from kvspec_diff.generate import Generator
from kvspec_diff.monitor import machine, start, translate
from kvspec_diff.program import Program
from kvspec_diff.subject import EVERYTHING
from kvspec_diff.subjects.reference import Reference

PROGRAMS = 400
"""How many programs' events are one round."""


Call = tuple[Callable[..., None], tuple[object, ...]]


class Stream(NamedTuple):
    """A program and the events that a right pool's run of it amounts to."""

    program: Program
    events: list[Action]


def streams(count: int, seed: int = 7) -> list[Stream]:
    """Programs as `kvspec diff` draws them, without misuse, each with its events."""
    found = []
    for program in islice(Generator(EVERYTHING, wild=0).bulk(seed), count):
        caller, events = Caller(program.configuration), list[Action]()
        for operation, outcome in zip(program.operations, Reference().run(program), strict=True):
            events += translate(caller, operation, outcome)
        found.append(Stream(program, events))
    return found


def by_hand_for(program: Program) -> by_hand.Monitor:
    """The monitor written by hand, as large as the compiled one's state."""
    state = start(program)
    return by_hand.Monitor(state.n_Page, state.n_Request, state.n_Entry, state.n_Offset, state.prefix)


def compiled_calls(stream: Stream) -> list[Call]:
    """Every event as a call that steps the compiled machine, from its initial state."""
    state, actions = start(stream.program), machine().actions
    return [(actions[str(name)], (state, *arguments)) for name, *arguments in stream.events]


def by_hand_calls(stream: Stream) -> list[Call]:
    """Every event as a call of the monitor written by hand, from its initial state."""
    monitor = by_hand_for(stream.program)
    return [(getattr(monitor, str(name)), tuple(arguments)) for name, *arguments in stream.events]


def seconds(made: Callable[[Stream], list[Call]], run: list[Stream]) -> float:
    """Seconds an event, of the thread's processor time; making the states is off the clock."""
    calls = [call for stream in run for call in made(stream)]
    start = thread_time_ns()
    for function, arguments in calls:
        function(*arguments)
    return (thread_time_ns() - start) / len(calls) / 1e9


def measured(rounds: int, programs: int = PROGRAMS) -> tuple[list[float], list[float]]:
    """Seconds an event, one number a round: compiled, written by hand; in turn, after a round that does not count."""
    run = streams(programs)
    figures: tuple[list[float], list[float]] = ([], [])
    gc.collect()
    gc.disable()
    try:
        for number in range(-1, rounds):
            for side in (number % 2, 1 - number % 2):
                figure = seconds((compiled_calls, by_hand_calls)[side], run)
                if number >= 0:
                    figures[side].append(figure)
    finally:
        gc.enable()
    return figures
