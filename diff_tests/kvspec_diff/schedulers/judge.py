"""What a scheduler answered to a program, held against the specification."""

from typing import Any

from kvspec_diff.batched.fault import Fault
from kvspec_diff.lookahead import Row
from kvspec_diff.schedulers.case import Case
from kvspec_diff.schedulers.ghost import Ghost, Tracked, fault
from kvspec_diff.schedulers.index import Index
from kvspec_diff.schedulers.order import Order


def judge(case: Case, answers: list[dict[str, Any]], row: Row) -> list[Fault]:
    """What is wrong, one fault of a key.

    What is read, what is decided, what is published and whether all comes to its end are judged each on its own, so
    that a fault of one hides none of another.
    """
    ghost, index = Ghost(case.setup), Index()
    order = None if case.setup.caching or case.setup.depth > 1 else Order(case, row)
    faults: list[Fault] = []
    aborted: set[int] = set()
    for answer in answers:
        op, *rest = answer["op"]
        if "raised" in answer:
            faults.append(fault("raised", answer["raised"].rpartition(" at ")[2], f"{op} raised {answer['raised']}"))
            break
        if not answer["done"]:
            continue
        if op == "add":
            ghost.requests[rest[0]] = Tracked(*rest[:4])
        if op == "abort":
            aborted.add(rest[0])
        faults += ghost.follow(answer, aborted)
        aborted.difference_update(answer.get("ended", ()))
        faults += _limits(case, answer) + _memory(case, answer) + index.follow(answer)
        if order is not None:
            faults += order.follow(answer)
    else:
        faults += _progress(ghost, answers)
    return list({each.key: each for each in reversed(faults)}.values())[::-1]


def _limits(case: Case, answer: dict[str, Any]) -> list[Fault]:
    """No step has more tokens, and no more requests run, than was set."""
    tokens, setup = sum(part[2] for part in answer.get("parts", ())), case.setup
    faults = []
    if tokens > setup.budget:
        faults.append(fault("limit", "budget", f"a step has {tokens} tokens, and may have {setup.budget}"))
    if len(answer["running"]) > setup.seats:
        faults.append(fault("limit", "seats", f"{len(answer['running'])} requests run, and {setup.seats} may"))
    return faults


def _memory(case: Case, answer: dict[str, Any]) -> list[Fault]:
    """Every block is free or in a table."""
    free, used, pool = answer["free"], answer["used"], case.setup.pool
    if free + used == pool:
        return []
    return [fault("A4", "blocks", f"{free} blocks are free and {used} in tables, of {pool}")]


def _progress(ghost: Ghost, answers: list[dict[str, Any]]) -> list[Fault]:
    """Every request comes to its end."""
    if not ghost.requests:
        return []
    left, last = ", ".join(map(str, ghost.requests)), answers[-1]
    if last["op"][0] == "schedule" and not last.get("parts"):
        where = "running" if last["running"] else "waiting"
        return [fault("A6", f"stuck {where}", f"requests {left} are never scheduled; {last['free']} blocks are free")]
    return [fault("A7", "endless", f"requests {left} are not at their end after {len(answers)} operations")]
