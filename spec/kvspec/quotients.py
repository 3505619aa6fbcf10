"""How many blocks so many positions need, and how many they fill (C3, C5, C6), for blocks of any size.

The machines that count blocks have these numbers as tables, of which they know no more than is proved here of every
quotient: so no solver has to divide, and what is proved of the tables holds for every size of a block.
"""

from kvspec.language import *

Position = Index("Position")


def up(t, size, n):
    """n blocks hold t positions, and n - 1 do not."""
    return And(n * size >= t, (n - 1) * size < t)


def down(t, size, n):
    """t positions fill n blocks, and do not fill n + 1."""
    return And(n * size <= t, (n + 1) * size > t)


def rises(t, u, n, m):
    """With n for t positions and m for u: more positions have no fewer blocks, and one more at most one more."""
    return And(Implies(t <= u, n <= m), Implies(u == t + 1, m <= n + 1), Implies(t == 0, n == 0))


def fills_less(t, u, n, m):
    """With n blocks that t positions fill and m that u positions need: one that is begun is needed."""
    return And(Implies(t <= u, n <= m), Implies(t < u, n < m))


class Quotients(Machine):
    """Two tables that fit together; position t stands in block `whole[t]`."""

    blocks = rigid(Map(Position, Nat))  # how many blocks so many positions need
    whole = rigid(Map(Position, Nat))  # how many they fill

    @assumption
    def needs_more(s, t: Position, u: Position):
        """More positions need more blocks."""
        return rises(t, u, s.blocks[t], s.blocks[u])

    @assumption
    def fills_more(s, t: Position, u: Position):
        """More positions fill more blocks."""
        return rises(t, u, s.whole[t], s.whole[u])

    @assumption
    def needs_what_is_begun(s, t: Position, u: Position):
        """Position t stands in a block that more than t positions need."""
        return fills_less(t, u, s.whole[t], s.blocks[u])

    @lemma("C6")
    def quotients_fit(t: Position, u: Position, size: Nat, n: Nat, m: Nat):
        """The quotients by any size, rounded up and rounded down, are such tables."""
        needed = Implies(And(up(t, size, n), up(u, size, m)), rises(t, u, n, m))
        filled = Implies(And(down(t, size, n), down(u, size, m)), rises(t, u, n, m))
        both = Implies(And(down(t, size, n), up(u, size, m)), fills_less(t, u, n, m))
        return Implies(size >= 1, And(needed, filled, both))

    @lemma("C5")
    def least(t: Position, size: Nat, n: Nat, m: Nat):
        """Any number of blocks that holds the positions is at least the quotient rounded up: one fewer does not do."""
        return Implies(And(size >= 1, up(t, size, n), m * size >= t), n <= m)

    @lemma("C3")
    def in_steps(t: Position, size: Nat, n: Nat, m: Nat, o: Nat):
        """Who grows a table, by what lies beyond its m blocks, gets as many blocks as who counts them at once."""
        return Implies(And(size >= 1, m * size <= t, up(t, size, n), up(t - m * size, size, o)), n == m + o)

    @lemma("C6")
    def capped_rises(c: Nat, n: Nat, a: Nat, m: Nat, d: Nat, o: Nat, k: Nat, w: Nat):
        """What is computed, new and ahead, cut at a limit, rises with each of them and with the limit."""
        less = And(c <= d, n <= o, a <= k, m <= w)
        return Implies(less, If(c + n + a < m, c + n + a, m) <= If(d + o + k < w, d + o + k, w))
