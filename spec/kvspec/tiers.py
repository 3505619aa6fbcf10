"""A store of entries in tiers: memory, a queue, a temporary file, a file (T2, T3, T5-T7).

A version is the number of a save; 0 is none. An entry goes down the tiers, and whoever reads looks from above.
"""

from kvspec.language import *

Key = Sort("Key")
Disk = Sort("Disk")


class Tiers(Machine):
    """Per key the version in each tier. A disk has a budget, and a queue with a writer of its own."""

    size, place = rigid(Map(Key, Nat), 1), rigid(Map(Key, Disk))  # bytes of an entry, and which disk it is on
    budget, slots = rigid(Map(Disk, Nat), 2), rigid(Map(Disk, Nat), 1)  # bytes, entries in the queue
    saves = state(Nat)
    hot, queued = state(Map(Key, Nat)), state(Map(Key, Nat))  # in memory, in the queue
    temp, shown = state(Map(Key, Nat)), state(Map(Key, Nat))  # in a temporary file, in a file
    indexed = state(SetOf(Key))
    latest = state(Map(Key, Nat))  # what a reader is to get
    used = count(lambda s, k, d: s.here(k, d, s.filed(k)), over=Key, per=Disk, law="T2")  # bytes
    waiting = count(lambda s, k, d: s.here(k, d, bit(s.queued[k] != 0)), over=Key, per=Disk, law="T6")

    @assumption
    def takes_one(s, k: Key):
        """A disk has room for any one entry of its own, and its queue too."""
        return And(s.size[k] >= 1, s.size[k] <= s.budget[s.place[k]], s.slots[s.place[k]] >= 1)

    def here(s, k, d, n):  # n, of the disk that k is on
        return If(s.place[k] == d, n, 0)

    def filed(s, k):  # bytes of its files, the temporary one too
        return If(s.shown[k] != 0, s.size[k], 0) + If(s.temp[k] != 0, s.size[k], 0)

    def on_disk(s, k):
        return If(s.indexed[k], s.shown[k], 0)

    def below(s, k):  # what a reader gets who does not look into the memory
        return If(s.queued[k] != 0, s.queued[k], If(s.temp[k] != 0, s.temp[k], s.on_disk(k)))

    def found(s, k):  # what a reader gets
        return If(s.hot[k] != 0, s.hot[k], s.below(k))

    @action
    def save(s, k: Key):
        """Take a new version into memory and into the queue, over one that is queued."""
        d = s.place[k]
        s.expect(Or(s.queued[k] != 0, s.waiting[d] < s.slots[d]), "T6")
        s.saves, s.waiting[d] = s.saves + 1, s.waiting[d] + bit(s.queued[k] == 0)
        s.hot[k], s.queued[k], s.latest[k] = s.saves + 1, s.saves + 1, s.saves + 1

    @action
    def refuse(s, k: Key):
        """Say that the queue is full."""
        s.expect(And(s.queued[k] == 0, s.waiting[s.place[k]] >= s.slots[s.place[k]]), "T6")

    @action
    def begin(s, k: Key):
        """The writer takes what is queued into a temporary file, if there is room for it beside the old one."""
        d = s.place[k]
        s.require(And(s.queued[k] != 0, s.temp[k] == 0))
        s.expect(s.used[d] + s.size[k] <= s.budget[d], "T2")
        s.temp[k], s.queued[k] = s.queued[k], 0
        s.used[d], s.waiting[d] = s.used[d] + s.size[k], s.waiting[d] - 1

    @action
    def rename(s, k: Key):
        """The temporary file becomes the entry, in place of an older one, and the index names it."""
        d = s.place[k]
        s.require(s.temp[k] != 0)
        s.used[d] = s.used[d] - If(s.shown[k] != 0, s.size[k], 0)
        s.shown[k], s.temp[k], s.indexed[k] = s.temp[k], 0, True

    @action
    def fail(s, k: Key):
        """Report that a version could not be written: the file that was there stays."""
        d = s.place[k]
        s.require(s.temp[k] != 0)
        s.temp[k], s.used[d] = 0, s.used[d] - s.size[k]
        s.latest[k] = If(s.hot[k] != 0, s.hot[k], If(s.queued[k] != 0, s.queued[k], s.on_disk(k)))

    @action
    def cool(s, k: Key):
        """Drop the copy in memory, if another tier has that version too."""
        s.expect(s.below(k) == s.hot[k], "T3")
        s.hot[k] = 0

    @action
    def drop(s, k: Key):
        """Drop the copy in memory even if no other tier has that version, and say so."""
        s.hot[k], s.latest[k] = 0, s.below(k)

    @action
    def evict(s, k: Key):
        """Delete the file together with its index entry, and say so."""
        d = s.place[k]
        s.require(s.shown[k] != 0)
        s.shown[k], s.indexed[k], s.used[d] = 0, False, s.used[d] - s.size[k]
        s.latest[k] = If(s.latest[k] == s.shown[k], s.hot[k], s.latest[k])

    @invariant("T2")
    def within_budget(s, d: Disk):
        """All files of a disk, the temporary ones too, are within its budget."""
        return s.used[d] <= s.budget[d]

    @invariant("T6")
    def within_slots(s, d: Disk):
        """A queue has no more entries than slots."""
        return s.waiting[d] <= s.slots[d]

    @invariant("T3")
    def tiers_agree(s, k: Key):
        """Whoever reads gets the latest version, from whichever tier it is in."""
        return s.found(k) == s.latest[k]

    @invariant("T5")
    def later_above(s, k: Key):
        """A tier has nothing later than the tiers above it."""
        less = lambda a, b: Implies(And(a != 0, b != 0), b < a)
        return And(less(s.queued[k], s.temp[k]), less(s.queued[k], s.shown[k]), less(s.temp[k], s.shown[k]))

    @invariant("T5")
    def was_saved(s, k: Key):
        """No tier has what was not saved."""
        return And(s.hot[k] <= s.saves, s.queued[k] <= s.saves, s.temp[k] <= s.saves, s.shown[k] <= s.saves)

    @step("T6", on=("refuse",))
    def refused(s, t, k: Key):
        """A full queue refuses what is not queued yet, and changes nothing; no other queue refuses."""
        return And(s.queued[k] == 0, s.waiting[s.place[k]] >= s.slots[s.place[k]], t.same(s))

    @step("T6", on=("begin", "rename", "cool"))
    def nothing_is_lost(s, t, k: Key):
        """On its way down the tiers no version is lost."""
        return t.latest[k] == s.latest[k]

    @step("T6", on=("fail",))
    def keeps_the_file(s, t, k: Key):
        """A save that fails leaves the file that was there, in the index."""
        return And(t.shown[k] == s.shown[k], t.indexed[k] == s.indexed[k])

    @invariant("T7")
    def indexed_or_gone(s, k: Key):
        """An entry is in the index if and only if it is in the folder."""
        return s.indexed[k] == (s.shown[k] != 0)
