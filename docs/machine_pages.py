"""A machine's page: what it declares, in English and in mathematics, and what is proved of it, as Markdown."""

import inspect
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import NamedTuple

import z3
from kvspec.language.elaborate import Action
from kvspec.language.machine import Law, Machine, action, cardinal, count, no_truth, state, total
from kvspec.language.markdown import Definition, Formula, Mathematics, fold, layout
from kvspec.language.solver import NEXT, Step, statement, step_statement, transition
from kvspec.language.sorts import Index, Map, Sort, domains, value_sort
from kvspec.language.walk import mentions
from kvspec.registry import ALGORITHMS, MACHINES, machine, variant, variant_names
from kvspec_proofs.obligations import Obligation, Obligations, obligations

SUBJECTS = (*MACHINES, *ALGORITHMS)
KINDS = {
    "invariant": "An invariant: it holds in every reachable state.",
    "derived": "A derived law: it holds in every reachable state, because the invariants imply it.",
    "step": "A law of steps, about the state before and (with a prime) the state after.",
    "lemma": "A lemma: arithmetic, about no state.",
    "assumption": "An assumption about the rigid variables: taken for granted in proofs, checked when a run starts.",
    "count": "A count: the counter is at all times the sum of the weights.",
}
OF_NO_LAW = ("domain", "superposition")


@cache
def laws_of(subject: str) -> tuple[list["Stated"], dict[str, Definition]]:
    """The laws that a machine itself declares, and the helpers that their formulas use."""
    helpers: dict[str, Definition] = {}
    return [*stated(subject, helpers)], helpers


@cache
def proved(subject: str) -> Obligations:
    """What must be proved of a machine."""
    return obligations(machine(subject))


class Stated(NamedTuple):
    """A law as a page shows it: `name` is also the anchor."""

    law: str
    name: str
    kind: str
    says: str
    lines: list[str]
    source: str
    obligations: str


def page(subject: str) -> str:
    """One machine."""
    kind = machine(subject)
    laws, of_laws = laws_of(subject)
    helpers = dict(of_laws)
    actions = [text for name in own(kind, "actions") for text in action_text(kind, name, helpers)]
    (parent,) = kind.__bases__
    extends = "" if parent is Machine else (
        f" It {'refines' if kind.algorithm else 'extends'} [`{module(parent)}`]({module(parent)}.md)"
        " and inherits its state, actions and laws; this page lists what it adds or refines."
    )  # fmt: skip
    found = proved(subject)
    kinds: dict[str, int] = defaultdict(int)
    for each in found.proofs:
        kinds[each.fragment] += 1
    of_language = sum(each.law in OF_NO_LAW for each in found.proofs)
    fragments = ", ".join(f"{number} {name}" for name, number in sorted(kinds.items()))
    return "\n".join([
        f"# `{subject}`",
        "",
        paragraphs(sys.modules[kind.__module__].__doc__ or ""),
        "",
        f"Machine `{kind.__name__}` (`{source_file(kind)}`). {paragraphs(kind.__doc__ or '')}{extends}",
        "",
        f"{len(found.proofs)} obligations ({fragments}), of which {of_language} are about sorts and superposition "
        f"and the others about laws; {found.skipped} pairs of action and law cannot meet and are skipped. "
        f"`kvspec prove {subject}` asks both solvers for all of them.",
        "",
        "## State",
        "",
        *state_table(kind, helpers),
        "",
        *definitions(kind, helpers),
        "## Laws",
        "",
        *[line for law in laws for line in law_text(subject, law)],
        "## Actions",
        "",
        "A guard says when an action may happen: `require` is the caller's duty, `expect` the engine's. To the prover "
        "both are guards; to a monitor a failed `expect` breaks the law beside it, and a failed `require` is a misuse. "
        "All assignments read the state before the step.",
        "",
        *actions,
    ])  # fmt: skip


# The state.


def state_table(kind: type[Machine], helpers: dict[str, Definition]) -> list[str]:
    rows = ["| variable | holds | at the start | |", "|---|---|---|---|"]
    comments = trailing_comments(kind)
    for name in own(kind, "variables"):
        var = kind.variables[name]
        note = comments.get(name, "")
        says, start = value_text(kind, var, helpers), start_text(kind, var, helpers)
        rows.append(f"| `{name}` | {says} | {start} | {note} |")
    return rows


def value_text(kind: type[Machine], var: state, helpers: dict[str, Definition]) -> str:
    if isinstance(var, cardinal):
        return f"the number of elements of {var.of.name}; rigid"
    if isinstance(var, total):
        return f"the number of elements of `{var.of.name}`"
    if isinstance(var, count):
        (per,) = domains(var.kind)
        moment, found = fold(kind.moment())
        x, j = (sort.const(sort.name[0].lower()) for sort in (var.over, per))
        with no_truth():
            weight = Mathematics(f"{var.name}")(var.weight(moment, x, j)).text
        helpers |= found
        return f"for each {per.name} {j} the sum of `{weight}` over all {var.over.name}s {x}"
    text = type_text(var.kind)
    return f"{text}; rigid: no action changes it" if var.rigid else text


def type_text(kind: Sort | Map) -> str:
    sorts, value = [sort.name for sort in domains(kind)], value_sort(kind).name
    if not sorts:
        return "true or false" if value == "Bool" else f"{a(value)} {value}"
    if value == "Bool":
        return f"a set of {sorts[0]}s" if len(sorts) == 1 else f"a relation of {', '.join(sorts)}"
    return f"{a(value)} {value} for each {', '.join(sorts)}"


def a(word: str) -> str:
    return "an" if word[0] in "AEIOU" else "a"


def start_text(kind: type[Machine], var: state, helpers: dict[str, Definition]) -> str:
    if var.rigid or isinstance(var, total):
        return ""
    value = value_sort(var.kind)
    if var.init is None:
        return "`false`" if value.name == "Bool" else "`0`" if isinstance(value, Index) else "anything"
    moment, found = fold(kind.moment())
    names = list(inspect.signature(var.init).parameters)[1:]
    index = [sort.const(name) for sort, name in zip(domains(var.kind), names, strict=True)]
    with no_truth():
        text = Mathematics(var.name)(var.init(moment, *index)).text
    helpers |= found
    return f"`{text}`"


def trailing_comments(kind: type[Machine]) -> dict[str, str]:
    """What the source says behind each declaration."""
    lines = inspect.getsource(kind).splitlines()
    found = [re.match(r"    (\w+) = (?:state|rigid|count|total|cardinal)\(.*\)  # (.*)", line) for line in lines]
    return {match[1]: match[2] for match in found if match}


def definitions(kind: type[Machine], helpers: dict[str, Definition]) -> Iterator[str]:
    """The helpers that the page's formulas use, those that they use in turn included."""
    used = {name: helpers[name] for name in helpers}
    if not used:
        return
    yield "## Abbreviations"
    yield ""
    for name in sorted(used):
        each = used[name]
        params = [str(param) for param in each.params]
        body = Mathematics(name, {*params, *mentions(each.body)})(each.body)
        says = paragraphs(inspect.getdoc(getattr(kind, name)) or "")
        yield from [says, ""] if says else []
        yield from block([*broken(f"{name}({', '.join(params)}) := ", body)])


# The laws.


def stated(subject: str, helpers: dict[str, Definition]) -> Iterator[Stated]:
    """The laws that the machine itself declares, its counts among them."""
    kind = machine(subject)
    for name in own(kind, "variables"):
        var = kind.variables[name]
        if isinstance(var, count):
            names = {f"{var.name} {part}" for part in ("weighs naturals", "counts", "frame", "delta")}
            says = f"`{name}` counts what it says it counts."
            yield Stated(var.law, name, "count", says, [], "", where(subject, belonging(var.law, names)))
    for name in own(kind, "laws"):
        law = kind.laws[name]
        if law.kind == "claim":
            continue
        texts = {law.name, f"{law.name} where nothing moves"}
        yield Stated(
            law.law, name, law.kind, paragraphs(law.doc), layout(formula(kind, law, helpers)),
            inspect.cleandoc(inspect.getsource(law.body)),
            where(subject, belonging(law.law, texts)),
        )  # fmt: skip


def formula(kind: type[Machine], law: Law, helpers: dict[str, Definition]) -> Formula:
    """The law's formula, with helpers under their names."""
    now, found = fold(kind.moment())
    later, found_later = fold(kind.moment(NEXT), NEXT)
    with no_truth():
        if law.kind == "step" and law.on:
            taken = transition(kind, law.on[0])
            folded = Step(taken.action, now, later, taken.guards, taken.updates)
            term = step_statement(law, folded)
        else:
            term = statement(law, *{"step": (now, later), "lemma": ()}.get(law.kind, (now,)))
    helpers |= fold_of(kind, found_later)
    helpers |= found
    return Mathematics(law.name, mentions(term))(term)


def fold_of(kind: type[Machine], later: dict[str, Definition]) -> dict[str, Definition]:
    """The same helpers on the state before: a name with a prime means the same of the state after."""
    moment, found = fold(kind.moment())
    with no_truth():
        for name, each in later.items():
            getattr(moment, name)(*each.params)
    return found


def belonging(law: str, names: set[str]) -> Callable[[Obligation], bool]:
    return lambda each: each.law == law and each.name in names


def where(subject: str, belongs: Callable[[Obligation], bool]) -> str:
    """The obligations of a law: which actions they are about in its own machine, and how many there are in others."""
    found = {name: [each for each in proved(name).proofs if belongs(each)] for name in SUBJECTS}
    actions = ", ".join(dict.fromkeys(each.action or "no step" for each in found[subject]))
    others = [f"{len(each)} in `{name}`" for name, each in found.items() if each and name != subject]
    again = f"; again {', '.join(others)}" if others else ""
    return f"{len(found[subject])} in `{subject}` ({actions}){again}" if found[subject] else ""


def bugs_by_law() -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for name in variant_names():
        found[variant(name).breaks].append(name)
    return found


def law_text(subject: str, law: Stated) -> Iterator[str]:
    bugs = [name for name in bugs_by_law().get(law.law, ())]
    yield f"### {f'{law.law} '.lstrip()}`{law.name}` {{ #{law.name} }}"
    yield ""
    yield law.says
    yield ""
    yield from block(law.lines)
    own_law = machine(subject).laws.get(law.name)
    on = ""
    if own_law and own_law.on:
        on = f" Of the steps {', '.join(f'`{name}`' for name in own_law.on)}."
    elif own_law and own_law.unless:
        on = f" Of all steps but {', '.join(f'`{name}`' for name in own_law.unless)}."
    yield KINDS[law.kind] + on
    yield ""
    if law.obligations:
        yield f"Obligations: {law.obligations}."
        yield ""
    if bugs:
        names = ", ".join(f"[`{name}`](known_bugs.md#{name})" for name in bugs)
        yield f"Known bug{'s' * (len(bugs) > 1)} that break{'s' * (len(bugs) == 1)} {law.law}: {names}."
        yield ""
    if law.source:
        yield '??? note "As written"'
        yield ""
        yield "    ```python"
        yield from (f"    {line}" for line in law.source.splitlines())
        yield "    ```"
        yield ""


# The actions.


def elaborated(kind: type[Machine], name: str) -> tuple[Action, dict[str, Definition]]:
    """An action with helpers under their names."""
    declared = kind.actions[name]
    view, found = fold(kind(kind.moment().terms))
    params = tuple((param, sort, sort.const(param)) for param, sort in declared.params.items())
    with no_truth():
        declared.body(view, *[const for _, _, const in params])
    return Action(name, declared.doc, params, tuple(view.guards), tuple(view.writes)), found


def action_text(kind: type[Machine], name: str, helpers: dict[str, Definition]) -> Iterator[str]:
    act, found = elaborated(kind, name)
    helpers |= found
    params = ", ".join(f"{param}: {sort.name}" for param, sort, _ in act.params)
    yield f"### `{name}({params})` {{ #action-{name} }}"
    yield ""
    yield paragraphs(act.doc)
    yield ""
    older = parent_of(kind, name)
    if older:
        yield f"Refines [`{older}.{name}`]({older}.md#action-{name}): its guards and assignments are among these."
        yield ""
    taken = {param for param, _, _ in act.params} | kind.variables.keys()
    if act.guards:
        yield "| guard | duty of | law |"
        yield "|---|---|---|"
        for guard in act.guards:
            text = Mathematics(name, taken)(guard.term).text.replace("|", "\\|")
            duty = {"require": "the caller", "expect": "the engine"}[guard.kind]
            yield f"| `{text}` | {duty} | {guard.law} |"
        yield ""
    lines: list[str] = []
    for write in act.writes:
        math = Mathematics(name, taken)
        bound = [math.bind(z3.Const(f"{letter(sort)}!{const}", const.sort())) for sort, const in
                 zip(domains(write.var.kind)[len(write.index) :], write.bound, strict=True)]  # fmt: skip
        math.names |= {str(const): given for const, given in zip(write.bound, bound, strict=True)}
        index = ", ".join([*(math(each).text for each in write.index), *bound])
        left = f"{write.var.name}[{index}]" if index else write.var.name
        left_open = domains(write.var.kind)[len(write.index) :]
        sorts = [f"{given}: {sort.name}" for given, sort in zip(bound, left_open, strict=True)]
        tail = f"    for all {', '.join(sorts)}" if bound else ""
        first_line, *more = broken(f"{left} ← ", math(write.value))
        lines += [first_line + tail, *more]
    if lines:
        yield from block(lines)
    else:
        yield "It changes nothing."
        yield ""


def parent_of(kind: type[Machine], name: str) -> str:
    """The machine from which an action is refined."""
    for base in kind.__bases__:
        if issubclass(base, Machine) and name in base.actions and base.actions[name] is not kind.actions[name]:
            owner = next(each for each in base.__mro__ if isinstance(vars(each).get(name), action))
            return module(owner)
    return ""


def letter(sort: Sort) -> str:
    return {"Entry": "j", "Offset": "i"}.get(sort.name, sort.name[0].lower())


# Text.


def own(kind: type[Machine], what: str) -> list[str]:
    """The names that a machine itself declares."""
    return [name for name in getattr(kind, what) if name in vars(kind)]


def module(kind: type[Machine]) -> str:
    return kind.__module__.rsplit(".", 1)[-1]


def source_file(kind: type[Machine]) -> str:
    return "spec/" + kind.__module__.replace(".", "/") + ".py"


def paragraphs(text: str) -> str:
    """A docstring as Markdown, a paragraph a line."""
    return "\n\n".join(" ".join(each.split()) for each in inspect.cleandoc(text).split("\n\n"))


def first(text: str) -> str:
    return paragraphs(text).split("\n\n")[0]


def linked(text: str) -> str:
    """Web addresses as links."""
    return re.sub(r"https?://[^\s\"'<>]+", lambda found: f"<{found[0]}>", text)


def broken(lead: str, formula: Formula) -> list[str]:
    """A formula behind a lead, on one line if it fits."""
    lines = layout(formula)
    if len(lines) == 1 and len(lead) + len(lines[0]) <= 96:
        return [lead + lines[0]]
    return [lead.rstrip(), *layout(formula, "    ")]


def block(lines: Iterable[str]) -> list[str]:
    lines = list(lines)
    return ["```text", *lines, "```", ""] if lines else []
