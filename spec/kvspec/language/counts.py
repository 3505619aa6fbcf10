"""What a proof may assume about counts and totals, and what it must show first: the delta rule.

A count c[j] is the sum over x of a weight w(x, j). Of any such sum of finitely many natural numbers it is known that no
part, and no two parts together, exceed it. These facts are not inductive by themselves: they are assumed before a step,
and after it only once the delta rule has shown that the counter moved by exactly what the weights did.
"""

from collections.abc import Callable

import z3

from kvspec.language.machine import Machine, SpecificationError, cardinal, count, total
from kvspec.language.solver import Step
from kvspec.language.sorts import Sort, domains
from kvspec.language.terms import Term, bit, every, universal
from kvspec.language.walk import mentions


def counts(machine: type[Machine]) -> list[count]:
    """The declared counters of a machine."""
    return [var for var in machine.variables.values() if isinstance(var, count)]


def totals(machine: type[Machine]) -> list[total]:
    """The declared totals of a machine."""
    return [var for var in machine.variables.values() if isinstance(var, total)]


def facts(machine: type[Machine], moment: Machine, *, witness: bool = False) -> list[Term]:
    """What every finite count and total satisfies; with `witness` also whose weights it has."""
    found: list[Term] = []
    for var in counts(machine):
        per, over, weight, c = domains(var.kind)[0], var.over, var.weight, moment.terms[var.name]
        j, x, y = per.fresh("j"), over.fresh("x"), over.fresh("y")
        found.append(universal([per], [j], c[j] >= 0))
        found.append(universal([over, per], [x, j], c[j] >= weight(moment, x, j)))
        both = z3.Implies(x != y, c[j] >= weight(moment, x, j) + weight(moment, y, j))
        found.append(universal([over, over, per], [x, y, j], both))
        if witness:
            holder = z3.Function(f"holder of {var.name}", per.z3, over.z3)
            found.append(universal([per], [j], z3.Implies(c[j] > 0, weight(moment, holder(j), j) > 0)))
            if z3.is_select(part := weight(moment, x, j)):
                another = z3.Function(f"another holder of {var.name}", over.z3, per.z3, over.z3)(x, j)
                adds = z3.And(another != x, weight(moment, another, j) > 0)
                found.append(universal([over, per], [x, j], z3.Or(c[j] == part, adds), (c[j], part)))
    for summed in totals(machine):
        sort, n, member = domains(summed.of.kind)[0], moment.terms[summed.name], moment.terms[summed.of.name]
        p, q = sort.fresh("p"), sort.fresh("q")
        found.append(n >= 0)
        found.append(universal([sort], [p], z3.Implies(member[p], n >= 1)))
        found.append(universal([sort, sort], [p, q], z3.Implies(z3.And(p != q, member[p], member[q]), n >= 2)))
        for whole in [v for v in machine.variables.values() if isinstance(v, cardinal) and v.of is sort]:
            size = moment.terms[whole.name]
            found += [size >= 1, n <= size]
            for alone in [moment.terms[name] for name, v in machine.variables.items() if v.rigid and v.kind is sort]:
                others = universal([sort], [p], z3.Implies(p != alone, member[p]))
                found.append(z3.Implies(others, n >= size - 1))
            found.append(universal([sort], [p], z3.Implies(z3.Not(member[p]), n <= size - 1)))
            two = z3.And(p != q, z3.Not(member[p]), z3.Not(member[q]))
            found.append(universal([sort, sort], [p, q], z3.Implies(two, n <= size - 2)))
        if witness:
            found.append(z3.Implies(n > 0, member[sort.const(f"an element of {summed.of.name}")]))
    return found


def deltas(machine: type[Machine], taken: Step) -> dict[count, list[Term]]:
    """For each counter the obligations of the delta rule: the frame (untouched x keep their weight) and the change."""
    obligations: dict[count, list[Term]] = {}
    for var in counts(machine):
        per, over = domains(var.kind)[0], var.over
        j, x = per.fresh("j"), over.fresh("x")

        def moved(x: Term, j: Term = j, weight: Callable[..., Term] = var.weight) -> Term:
            return weight(taken.after, x, j) - weight(taken.before, x, j)

        touched = touched_terms(taken, var.over, mentions(var.weight(taken.before, x, j)))
        apart = every([x != term for term in touched])
        frame = universal([over, per], [x, j], z3.Implies(apart, moved(x) == 0))
        change = taken.after.terms[var.name][j] - taken.before.terms[var.name][j]
        obligations[var] = [frame, universal([per], [j], change == each_once(touched, moved))]
    return obligations


def touched_terms(taken: Step, over: Sort, names: frozenset[str]) -> list[Term]:
    """The elements of `over` at which the step assigns one of the named variables."""
    touched: list[Term] = []
    for write in taken.action.writes:
        if write.var.name in names:
            places = [place for place, sort in enumerate(domains(write.var.kind)) if sort is over]
            if len(places) != 1 or places[0] >= len(write.index):
                text = f"{taken.action.name}: the delta rule needs {write.var.name} assigned at named {over.name}s only"
                raise SpecificationError(text)
            if not any(write.index[places[0]].eq(term) for term in touched):
                touched.append(write.index[places[0]])
    return touched


def movements(machine: type[Machine], taken: Step) -> list[Term]:
    """How totals move: by the touched elements where a set is assigned point by point, by inclusion where in bulk."""
    found: list[Term] = []
    for var in totals(machine):
        old, new = (m.terms[var.name] for m in (taken.before, taken.after))
        was, now = (m.terms[var.of.name] for m in (taken.before, taken.after))
        writes = [write for write in taken.action.writes if write.var is var.of]
        if any(write.bound for write in writes):
            sort = domains(var.of.kind)[0]
            p = sort.fresh("p")
            found.append(z3.Implies(universal([sort], [p], z3.Implies(was[p], now[p])), old <= new))
            found.append(z3.Implies(universal([sort], [p], z3.Implies(now[p], was[p])), new <= old))
        else:
            touched = [write.index[0] for write in writes]

            def joined(p: Term, now: Term = now, was: Term = was) -> Term:
                return bit(now[p]) - bit(was[p])

            found.append(new - old == each_once(touched, joined))
    return found


def each_once(touched: list[Term], change: Callable[[Term], Term]) -> Term:
    """The sum of `change` over the touched elements, each once even where two terms name the same one."""
    sum_: Term = z3.IntVal(0)
    for number, term in enumerate(touched):
        sum_ += z3.If(every([term != earlier for earlier in touched[:number]]), change(term), z3.IntVal(0))
    return sum_
