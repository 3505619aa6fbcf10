"""The smallest scope that exercises a law: all its statements have their case there, and no smaller one will do."""

from kvspec.language import Implies, Machine, SetOf, action, invariant, state
from kvspec.pages import Page, Pages
from kvspec_proofs.witnesses import SORTS, Witness, ordered, witnesses


class Seen(Machine):
    """Pages are seen, one after the other, and never unseen."""

    seen, often = state(SetOf(Page)), state(SetOf(Page))

    @action
    def see(s, p: Page):
        """Once, then often."""
        s.often[p] = s.seen[p]
        s.seen[p] = True

    @invariant("X1")
    def often_is_seen(s, p: Page):
        """What was seen often was seen."""
        return Implies(s.often[p], s.seen[p])

    @invariant("X1")
    def two_are_two(s, p: Page, q: Page):
        """Where one was seen and the other was not, they are two."""
        return Implies(s.seen[p] != s.seen[q], p != q)

    @invariant("X2")
    def never(s, p: Page):
        """Whose case cannot occur."""
        return Implies(s.often[p] != s.often[p], s.seen[p])


def test_every_statement_has_its_case_at_the_scope() -> None:
    """`often` needs one page and two steps, a page that was not seen needs a second one."""
    laws = {"often_is_seen": "X1", "two_are_two": "X1", "never": "X2"}
    found = witnesses(Seen, laws, most=3)
    assert found == {"X1": Witness("see", 2, "2 Page, else 1")}
    assert witnesses(Seen, {"often_is_seen": "X1"}, most=3) == {"X1": Witness("see", 2, "1 of each")}


def test_a_law_without_a_scope_up_to_the_limit_is_left_out() -> None:
    assert witnesses(Seen, {"two_are_two": "X1"}, most=1) == {}


def test_a_counter_has_its_case_when_it_counts_something() -> None:
    assert witnesses(Pages, {"refs_counts": "O3"}, most=6) == {"O3": Witness("acquire", 1, "2 Page, else 1")}


def test_scopes_come_smallest_first() -> None:
    sums = [sum(sizes[sort] for sort in sizes if sort in SORTS) for sizes in ordered(Pages, most=6)]
    assert sums == sorted(sums)
    first, second, third = list(ordered(Pages, most=6))[:3]
    assert {first[sort] for sort in first if sort in SORTS} == {1}
    assert (second["Request"], third["Page"]) == (2, 2)
