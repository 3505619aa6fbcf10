# ruff: noqa: RUF001 - signs of mathematics that look like letters are meant
"""Formulas for the documentation: every construct has one, and what they say is what is proved."""

import pytest
import z3
from kvspec.language import Nat, Sort, SpecificationError, exists, forall
from kvspec.language.machine import Law, Machine, no_truth
from kvspec.language.markdown import WIDTH, Mathematics, fold, layout
from kvspec.language.solver import NEXT, statement
from kvspec.language.walk import CONSTRUCTS
from kvspec.registry import ALGORITHMS, MACHINES, machine

Page = Sort("Page")
a, b, c = z3.Bools("a b c")
x, y, z = z3.Ints("x y z")
p, q, r = (Page.const(name) for name in "pqr")
member = z3.Const("member", z3.ArraySort(Page.z3, z3.BoolSort()))
of = z3.Const("of", z3.ArraySort(Page.z3, z3.ArraySort(z3.IntSort(), Page.z3)))

SAYS = [
    (z3.BoolVal(True), "true"),
    (z3.And(a, z3.BoolVal(False)), "a ∧ false"),
    (z3.And(), "true"),
    (z3.Or(), "false"),
    (z3.And(a, z3.Or(b, c)), "a ∧ (b ∨ c)"),
    (z3.And(a, z3.And(b, c)), "a ∧ b ∧ c"),
    (z3.Or(z3.Or(a, z3.And(b)), c), "a ∨ b ∨ c"),
    (z3.Implies(z3.And(a, b), c), "a ∧ b ⇒ c"),
    (z3.Implies(a, z3.Implies(b, c)), "a ⇒ (b ⇒ c)"),
    (z3.Not(z3.And(a, b)), "¬(a ∧ b)"),
    (z3.Not(x == y), "¬(x = y)"),
    (z3.Not(member[p]), "¬member[p]"),
    (a == z3.Not(b), "a = ¬b"),
    (a == (x > y), "a = (x > y)"),
    (p != q, "p ≠ q"),
    (z3.Distinct(p, q, r), "distinct(p, q, r)"),
    (z3.If(a, x, y) >= 0, "(if a then x else y) ≥ 0"),
    (z3.If(a, z3.IntVal(1), z3.IntVal(0)), "[a]"),
    (z3.And(x <= y, y < z), "x ≤ y ∧ y < z"),
    ((x + y) * z - (x - y), "(x + y) · z − (x − y)"),
    (-x - -(x + y), "−x − −(x + y)"),
    (x / y + x % (y + 1), "x div y + x mod (y + 1)"),
    (x / (y / z), "x div (y div z)"),
    (z3.IntVal(-2) * x, "−2 · x"),
    (of[p][x + 1], "of[p, x + 1]"),
    (member[of[p][x]], "member[of[p, x]]"),
    (forall(Page, Page, lambda p, q: p == q), "∀ p, q: Page. p = q"),
    (forall(Page, Nat, lambda p, i: of[p][i] == p), "∀ p: Page, i: Nat. of[p, i] = p"),
    (exists(Nat, lambda i: i > x), "∃ i: Nat. i > x"),
    (z3.And(a, forall(Page, lambda p: member[p])), "a ∧ (∀ p: Page. member[p])"),
    (forall(Nat, lambda i: exists(Nat, lambda i: i > x)), "∀ i: Nat. ∃ i₁: Nat. i₁ > x"),
    (z3.Const(f"member{NEXT}", member.sort())[p], "member′[p]"),
    (z3.Function("last", Page.z3, z3.BoolSort())(p), "last(p)"),
]  # fmt: skip


@pytest.mark.parametrize(("term", "says"), SAYS, ids=[says for _, says in SAYS])
def test_it_says(term: z3.ExprRef, says: str) -> None:
    assert Mathematics("a test")(term).text == says


def test_every_construct_of_the_language_is_there() -> None:
    assert [name for name in (*CONSTRUCTS.values(), "forall", "exists") if not hasattr(Mathematics, name)] == []


def test_a_construct_outside_the_language_is_an_error() -> None:
    with pytest.raises(SpecificationError, match=r"the documentation has no '\*\*': .* in a test"):
        Mathematics("a test")(x**y > 0)


def test_a_bound_variable_has_a_name_that_nothing_else_has() -> None:
    term = forall(Page, lambda p: member[p])
    assert Mathematics("a test", taken={"p", "p₁"})(term).text == "∀ p₂: Page. member[p₂]"


def test_a_condition_on_an_index_that_is_not_its_sorts_stays() -> None:
    assert Mathematics("a test")(forall(Nat, lambda i: z3.Implies(i >= 1, i > x))).text == ("∀ i: Nat. i ≥ 1 ⇒ i > x")


def test_what_is_long_is_broken_at_its_outermost_signs() -> None:
    long = [z3.Bool(letter * 30) for letter in "abcde"]
    term = forall(Page, lambda p: z3.Implies(z3.And(long[0], z3.Or(*long[1:])), member[p]))
    assert layout(Mathematics("a test")(term)) == [
        "∀ p: Page.",
        "      " + "a" * 30,
        f"    ∧ ({'  ' + 'b' * 30}",
        *[f"       ∨ {letter * 30}" for letter in "cd"],
        f"       ∨ {'e' * 30})",
        "  ⇒ member[p]",
    ]


def test_a_long_choice_has_a_line_for_each_case() -> None:
    conditions = z3.And(*[z3.Bool(letter * 30) for letter in "abc"])
    assert layout(Mathematics("a test")(z3.If(conditions, x, y)), "    ") == [
        "    if     " + "a" * 30,
        "         ∧ " + "b" * 30,
        "         ∧ " + "c" * 30,
        "    then x",
        "    else y",
    ]


def laws() -> list[tuple[str, str]]:
    names = [*MACHINES, *ALGORITHMS]
    return [(name, law.name) for name in names for law in machine(name).laws.values() if law.kind != "claim"]


def stated(law: Law, *moments: Machine) -> z3.ExprRef:
    with no_truth():
        return statement(law, *moments[: {"step": 2, "lemma": 0}.get(law.kind, 1)])


@pytest.mark.parametrize(("subject", "name"), laws())
def test_unfolded_it_is_what_is_proved(subject: str, name: str) -> None:
    kind = machine(subject)
    law = kind.laws[name]
    proved = stated(law, kind.moment(), kind.moment(NEXT))
    (now, helpers), (later, helpers_later) = fold(kind.moment()), fold(kind.moment(NEXT), NEXT)
    read = stated(law, now, later)
    for _ in range(3):
        for each in (*helpers.values(), *helpers_later.values()):
            places = [z3.Var(place, param.sort()) for place, param in enumerate(each.params)]
            body = z3.substitute(each.body, *zip(each.params, places, strict=True))
            read = z3.substitute_funs(read, (each.function, body))
    assert Mathematics("a test")(read).text == Mathematics("a test")(proved).text


@pytest.mark.parametrize(("subject", "name"), laws())
def test_a_law_fits_the_page(subject: str, name: str) -> None:
    kind = machine(subject)
    (now, _), (later, _) = fold(kind.moment()), fold(kind.moment(NEXT), NEXT)
    assert max(map(len, layout(Mathematics("a test")(stated(kind.laws[name], now, later))))) <= WIDTH
