"""Breadth-first search of a compiled machine at a small scope: the shortest run from init that breaks a law."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kvspec.language.machine import Machine
from kvspec.language.run import Compiled, State, arguments, compile_machine

Broken = list[tuple[str, str]]


@dataclass(frozen=True)
class Move:
    """One action of a run, with its arguments and the state after it."""

    action: str
    args: tuple[int, ...]
    after: State


@dataclass(frozen=True)
class Run:
    """A run from an initial state; `broken` names the laws, as (id, name), that its last step breaks."""

    start: State
    moves: tuple[Move, ...]
    broken: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Searched:
    """How far a search went: distinct states, steps taken, depth, whether nothing was left; and the run it found."""

    states: int
    steps: int
    depth: int
    exhausted: bool
    run: Run | None


def search(
    machine: type[Machine],
    sizes: Mapping[str, int],
    rigid: Mapping[str, Any],
    *,
    law: str = "",
    goal: Callable[[State, str, tuple[int, ...], State], bool] | None = None,
    max_states: int = 200_000,
    progress: Callable[[int, int], None] | None = None,
) -> Searched:
    """Looks for a step that breaks `law` (any law when empty), or that meets `goal`; stops at `max_states`."""
    compiled = compile_machine(machine)
    start = compiled.start(sizes, rigid)
    came: dict[Any, tuple[Any, str, tuple[int, ...]]] = {}
    first = key(compiled, start)
    seen, level, depth, steps = {first}, [(first, start)], 0, 0
    while level:
        depth += 1
        following: list[tuple[Any, State]] = []
        for name, state in level:
            for action, args, after in successors(compiled, state):
                steps += 1
                if goal is None:
                    broken = compiled.judge(state, action, args, after, only=law)
                    found = bool(broken)
                else:
                    broken, found = [], goal(state, action, args, after)
                if found:
                    moves = [*_trail(compiled, start, came, name), Move(action, args, after)]
                    run = Run(start, tuple(moves), tuple(compiled.judge(state, action, args, after)))
                    return Searched(len(seen), steps, depth, False, run)
                again = key(compiled, after)
                if again not in seen:
                    seen.add(again)
                    came[again] = (name, action, args)
                    following.append((again, after))
                    if len(seen) >= max_states:
                        return Searched(len(seen), steps, depth, False, None)
        if progress:
            progress(depth, len(seen))
        level = following
    return Searched(len(seen), steps, depth, True, None)


def successors(compiled: Compiled, state: State) -> Iterator[tuple[str, tuple[int, ...], State]]:
    """Every step from a state."""
    for action, enabled in compiled.enabled.items():
        for args in arguments(compiled, action, state):
            if enabled(state, *args):
                after = state.copy()
                compiled.actions[action](after, *args)
                yield action, args, after


def _trail(compiled: Compiled, start: State, came: Mapping[Any, Any], name: Any) -> list[Move]:
    """The run to a state, replayed."""
    back = []
    while name in came:
        name, action, args = came[name]
        back.append((action, args))
    moves, state = [], start
    for action, args in reversed(back):
        state = state.copy()
        compiled.actions[action](state, *args)
        moves.append(Move(action, args, state))
    return moves


def key(compiled: Compiled, state: State) -> Any:
    """A state as a value."""
    return tuple(_frozen(getattr(state, name)) for name in compiled.machine.variables)


def _frozen(value: Any) -> Any:
    return tuple(_frozen(item) for item in value) if isinstance(value, list) else value
