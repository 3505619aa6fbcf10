"""A prefix on disk, block by block and member by member (B3-B6, B8, B10): what a restore may claim.

Plain layers are sliced: each block has its own positions. Windows and recurrent layers have a state, which is valid at
the end of the block that it is stored with and nowhere else; the other blocks may have none.
"""

from kvspec.language import *

Member = Sort("Member")
Block = Index("Block")
Part = Sort("Part")


class Blocks(Machine):
    """The stored blocks of one prefix, and the cache that is restored from them. Lengths are counted in blocks."""

    sliced = rigid(SetOf(Member))  # the others have states
    computed = rigid(Map(Member, Block, Part))  # the slice of a block, or the state at its end
    each = rigid(Nat, 1)  # bytes of a block: of its slices and its states
    stored, holds = state(SetOf(Block)), state(Relation(Member, Block))
    part, bytes = state(Map(Member, Block, Part)), state(Map(Block, Nat))
    length, cache = state(Map(Member, Nat)), state(Map(Member, Block, Part))

    def covers(s, m, n):  # what is stored of m makes up n blocks
        whole = forall(Block, lambda b: Implies(b < n, And(s.stored[b], s.holds[m, b])))
        last = And(s.stored[n - 1], s.holds[m, n - 1])
        return Or(n == 0, If(s.sliced[m], whole, last))

    def valid(s, n):
        return forall(Member, lambda m: s.covers(m, n))

    def reaches(s, m, b, n):  # block b is a part of m at length n: each one of a slice, of a state the last one
        return If(s.sliced[m], b < n, b + 1 == n)

    def stuck(s, n):  # some member cannot be shortened to n
        return exists(Member, lambda m: Or(n > s.length[m], And(Not(s.sliced[m]), n < s.length[m])))

    @action
    def store(s, b: Block):
        """Store a block of a prefix that was computed: every slice, and every state."""
        s.stored[b], s.bytes[b] = True, s.each
        s.holds = lambda m, c: Or(s.holds[m, c], c == b)
        s.part = lambda m, c: If(c == b, s.computed[m, c], s.part[m, c])

    @action
    def skim(s, b: Block):
        """Store a block inside a longer one: its slices alone."""
        s.expect(Not(s.stored[b]), "B10")
        s.stored[b], s.bytes[b] = True, s.each
        s.holds = lambda m, c: If(c == b, s.sliced[m], s.holds[m, c])
        s.part = lambda m, c: If(And(c == b, s.sliced[m]), s.computed[m, c], s.part[m, c])

    @action
    def lose(s, b: Block):
        """A block is evicted, or was damaged."""
        s.stored[b] = False

    @action
    def restore(s, n: Block, asked: Block):
        """Build a cache of n blocks, the most of the asked ones that are all there."""
        s.expect(And(n <= asked, s.valid(n)), "B4")
        s.expect(forall(Block, lambda k: Implies(And(n < k, k <= asked), Not(s.valid(k)))), "B4")
        s.length = lambda m: n
        s.cache = lambda m, b: If(s.reaches(m, b, n), s.part[m, b], s.cache[m, b])

    @action
    def trim(s, n: Block):
        """Shorten every member to n blocks, or none: a state cannot be shortened."""
        s.expect(Not(s.stuck(n)), "B8")
        s.length = lambda m: n

    @action
    def refuse(s, n: Block):
        """Say that some member cannot be shortened so."""
        s.expect(s.stuck(n), "B8")

    @lemma("B3")
    def slices_join(size: Nat, i: Nat, q: Nat, other: Nat):
        """A position stands in one block only, whatever the block size, at an offset inside it."""
        inside = lambda n: And(n * size <= i, i < (n + 1) * size)
        return Implies(And(size >= 1, inside(q), inside(other)), And(q == other, i - q * size < size))

    @invariant("B4")
    def reads_as_computed(s, m: Member, b: Block):
        """What is restored is what was computed, and there is no gap in it."""
        return Implies(s.reaches(m, b, s.length[m]), s.cache[m, b] == s.computed[m, b])

    @step("B4", on=("restore",))
    def longest(s, t, n: Block, asked: Block, k: Block):
        """It is no longer than what was asked for, and nothing longer of that is all there."""
        return And(n <= asked, Implies(And(n < k, k <= asked), Not(s.valid(k))))

    @invariant("B5")
    def one_length(s, m: Member, o: Member):
        """All members stand at the same length."""
        return s.length[m] == s.length[o]

    @invariant("B6")
    def costs_a_block(s, b: Block):
        """A block costs what a block costs, wherever in the prefix it stands."""
        return Implies(s.stored[b], s.bytes[b] <= s.each)

    @lemma("B6")
    def grows_linearly(blocks: Nat, each: Nat, total: Nat):
        """So a prefix of one block more costs a block more."""
        return Implies(total == blocks * each, total + each == (blocks + 1) * each)

    @lemma("B6")
    def whole_states_grow_quadratically(blocks: Nat, each: Nat, total: Nat):
        """If each block holds the whole of what is before it, twice as many blocks cost four times as much."""
        more = (blocks + 1) * each
        return Implies(2 * total == blocks * more, 2 * (total + more) == (blocks + 2) * more)

    @lemma("B7")
    def ring_keeps_its_places(ring: Nat, i: Nat, q: Nat, j: Nat, p: Nat):
        """Positions of one window have slots of their own in a ring that keeps its offset: i - q * ring, for i."""
        inside = lambda n, k: And(k * ring <= n, n < (k + 1) * ring)
        window = And(i < j, j < i + ring)
        return Implies(And(ring >= 1, inside(i, q), inside(j, p), window), i - q * ring != j - p * ring)

    @step("B8", on=("refuse",))
    def refused(s, t, n: Block):
        """A trim is refused where some member cannot be shortened so, and changes nothing."""
        return And(s.stuck(n), t.same(s))

    @step("B8", on=("trim",))
    def all_or_none(s, t, m: Member, n: Block):
        """Every member is trimmed to the same length, and what it then has it had before."""
        return And(t.length[m] == n, Or(s.sliced[m], t.length[m] == s.length[m]))

    @invariant("B10")
    def no_placeholder(s, m: Member, b: Block):
        """What a block says that it holds is all there."""
        return Implies(And(s.stored[b], s.holds[m, b]), s.part[m, b] == s.computed[m, b])

    @step("B10", on=("store", "skim"))
    def no_less_than_before(s, t, m: Member, b: Block):
        """No block is replaced by one that holds less."""
        return Implies(And(s.stored[b], s.holds[m, b]), t.holds[m, b])
