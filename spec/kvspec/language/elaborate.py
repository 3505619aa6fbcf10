"""An action's body, run once on constants: the parameters, guards and assignments of every interpretation."""

from dataclasses import dataclass

from kvspec.language.machine import Guard, Machine, SpecificationError, Write, action, no_truth, total
from kvspec.language.sorts import Sort
from kvspec.language.terms import Term
from kvspec.language.walk import mentions


@dataclass(frozen=True)
class Action:
    """An elaborated action: its parameters as constants, its guards, and its assignments over the state before."""

    name: str
    doc: str
    params: tuple[tuple[str, Sort, Term], ...]
    guards: tuple[Guard, ...]
    writes: tuple[Write, ...]

    @property
    def written(self) -> frozenset[str]:
        """The names of the variables it assigns."""
        return frozenset(write.var.name for write in self.writes)


def elaborate(machine: type[Machine], name: str, moment: Machine | None = None) -> Action:
    """Runs an action's body once on constants."""
    declared = machine.actions[name]
    if clash := declared.params.keys() & machine.variables.keys():
        raise SpecificationError(f"{machine.__name__}.{name}: parameter {min(clash)!r} is a state variable's name too")
    before = moment or machine.moment()
    view = machine(before.terms)
    params = tuple((param, sort, sort.const(param)) for param, sort in declared.params.items())
    with no_truth():
        declared.body(view, *[const for _, _, const in params])
    found = Action(name, declared.doc, params, tuple(view.guards), tuple(view.writes))
    if machine.algorithm:
        _reads_its_own(machine, found)
    return found


def _reads_its_own(machine: type[Machine], act: Action) -> None:
    """Refuses an algorithm that decides or keeps anything by looking at a ghost, a variable of what it refines."""
    specified = [base for base in machine.__mro__ if issubclass(base, Machine) and not base.algorithm]
    ghosts = {name for base in specified for name, var in base.variables.items() if not var.rigid}
    ghosts |= {name for name, var in machine.variables.items() if isinstance(var, total) and var.of.name in ghosts}
    read = [term for write in act.writes if write.var.name not in ghosts for term in (*write.index, write.value)]
    inherited = [base.actions.get(act.name) for base in machine.__bases__ if issubclass(base, Machine)]
    if machine.actions[act.name] not in inherited:
        parents = [guard.term for base in inherited if base for guard in _guards(machine, base)]
        read += [guard.term for guard in act.guards if not any(guard.term.eq(term) for term in parents)]
    for term in read:
        if seen := mentions(term) & ghosts:
            text = f"reads the ghost {min(seen)!r}: an algorithm decides by variables of its own"
            raise SpecificationError(f"{machine.__name__}.{act.name}: {term} {text}")


def _guards(machine: type[Machine], inherited: action) -> list[Guard]:
    """The guards of a parent's action, on the same constants."""
    view = machine(machine.moment().terms)
    with no_truth():
        inherited.body(view, *[sort.const(param) for param, sort in inherited.params.items()])
    return view.guards
