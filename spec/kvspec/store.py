"""What of a store outlives a crash, and when that may be said (T1, T2, T4).

What the folder shows is in memory. What of it is on the disk the system decides at any time, at the latest when the
folder is synced: so a crash that leaves what is on the disk is any legal crash. A key is found again one at a time and
at any moment: after a crash all are, in any order, and some a second time if the process dies meanwhile.
"""

from kvspec.language import *
from kvspec.tiers import Key, Tiers


class Store(Tiers):
    """Per key what a crash would leave of its file, and what was acknowledged."""

    synced = state(SetOf(Key))  # the temporary file's contents are on the disk
    sound = state(SetOf(Key))  # the file's contents are
    durable, firm = state(Map(Key, Nat)), state(SetOf(Key))  # the file as a crash would leave it, and its contents
    acknowledged = state(Map(Key, Nat))

    def fits(s, k):  # there is room for what a crash leaves of k
        d = s.place[k]
        return s.used[d] - s.filed(k) + If(s.durable[k] != 0, s.size[k], 0) <= s.budget[d]

    def gone(s, k, version):
        """What was in memory is gone; the folder has this version."""
        d = s.place[k]
        s.used[d] = s.used[d] - s.filed(k) + If(version != 0, s.size[k], 0)
        s.waiting[d] = s.waiting[d] - bit(s.queued[k] != 0)
        s.hot[k], s.queued[k], s.temp[k] = 0, 0, 0
        s.shown[k], s.latest[k], s.indexed[k] = version, version, version != 0

    @action
    def begin(s, k: Key):
        """Nothing of the temporary file is on the disk."""
        super().begin(k)
        s.synced[k] = False

    @action
    def sync(s, k: Key):
        """All of the temporary file is on the disk."""
        s.synced[k] = True

    @action
    def rename(s, k: Key):
        """Its contents are on the disk before its name is."""
        super().rename(k)
        s.expect(s.synced[k], "T1")
        s.sound[k] = s.synced[k]

    @action
    def evict(s, k: Key):
        """What was acknowledged may be gone after a crash, too."""
        super().evict(k)
        s.acknowledged[k] = 0

    @action
    def settle(s, k: Key):
        """What the folder shows of a key is on the disk: by the system's own will, or since the folder was synced."""
        s.durable[k], s.firm[k] = s.shown[k], s.sound[k]

    @action
    def acknowledge(s, k: Key):
        """Say that it will be found after a crash."""
        s.expect(s.durable[k] == s.shown[k], "T4")
        s.acknowledged[k] = s.shown[k]

    @action
    def recover(s, k: Key):
        """Find a key again after a crash by what is on the disk, if there is room; what is temporary is deleted."""
        s.expect(s.fits(k), "T2")
        s.gone(k, s.durable[k])
        s.sound[k] = s.firm[k]

    @action
    def reclaim(s, k: Key):
        """Find it again by deleting its file, where there is too little room; till that settles it may come back."""
        s.gone(k, 0)
        s.acknowledged[k] = 0

    @invariant("T1")
    def whole(s, k: Key):
        """What is shown and what a crash would leave is whole: the contents come to the disk before the name."""
        return And(Implies(s.shown[k] != 0, s.sound[k]), Implies(s.durable[k] != 0, s.firm[k]))

    @step("T1", on=("recover",))
    def old_or_new(s, t, k: Key):
        """After a crash a key has what was on the disk, nothing temporary, and no less than was acknowledged."""
        return And(t.found(k) == s.durable[k], t.temp[k] == 0, t.found(k) >= s.acknowledged[k])

    @invariant("T4")
    def acknowledged_stays(s, k: Key):
        """What was acknowledged is on the disk, or something later is."""
        kept = And(s.acknowledged[k] <= s.durable[k], s.acknowledged[k] <= s.shown[k])
        return And(kept, s.durable[k] <= s.saves)
