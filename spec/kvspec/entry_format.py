"""What a stored entry says of itself, and who may believe it (E1-E6).

A signature names everything that changes the meaning of the bytes: of two entries with one signature and one key the
bytes mean the same. What an entry means is fixed when it is written, by who wrote it: no reader sees it.
"""

from kvspec.language import *

File = Sort("File")
Key = Sort("Key")
Signature = Sort("Signature")
Meaning = Sort("Meaning")
Host = Sort("Host")
Text = Sort("Text")


class EntryFormat(Machine):
    """Entries that were written by many, and one reader with its own signature."""

    wanted = rigid(Map(Key, Signature, Meaning))  # what an entry of this key is to mean to a reader
    mine = rigid(Signature)
    oldest, newest = rigid(Nat, 1), rigid(Nat, 2)  # versions that it knows; from the oldest on it can upgrade
    key_of = rigid(Map(Text, Key))  # of a parent, tokens, and everything that changes meaning: on every host the same
    present, damaged = state(SetOf(File)), state(SetOf(File))
    version, signature = state(Map(File, Nat)), state(Map(File, Signature))
    key, means = state(Map(File, Key)), state(Map(File, Meaning))
    named = state(Map(Host, Text, Key))  # what a host calls it
    knows = state(Relation(Host, Text))
    got, reads = state(Map(Key, Meaning)), state(SetOf(Key))

    @assumption
    def signatures_matter(s, k: Key, g: Signature, h: Signature):
        """Under another signature the bytes mean something else."""
        return Implies(g != h, s.wanted[k, g] != s.wanted[k, h])

    def readable(s, f, k):  # f is what a reader may take for k, in the newest version
        same = And(s.signature[f] == s.mine, s.key[f] == k)
        return And(s.present[f], Not(s.damaged[f]), same, s.version[f] == s.newest)

    def upgradable(s, f):
        known = And(s.oldest <= s.version[f], s.version[f] < s.newest)
        return And(s.present[f], Not(s.damaged[f]), known, s.signature[f] == s.mine)

    @action
    def write(s, f: File, k: Key, v: Nat, g: Signature):
        """Somebody writes an entry, of any version and signature."""
        s.present[f], s.damaged[f], s.version[f], s.signature[f] = True, False, v, g
        s.key[f], s.means[f] = k, s.wanted[k, g]

    @action
    def damage(s, f: File, v: Nat, g: Signature, k: Key, m: Meaning):
        """Anything of an entry changes, by no writer."""
        s.damaged[f], s.version[f], s.signature[f], s.key[f], s.means[f] = True, v, g, k, m

    @action
    def delete(s, f: File):
        """An entry goes."""
        s.present[f] = False

    @action
    def upgrade(s, f: File):
        """Write an older entry anew in the newest version, with the meaning that it has."""
        s.expect(s.upgradable(f), "E3")
        s.version[f] = s.newest

    @action
    def read(s, f: File, k: Key):
        """Take an entry for what it says."""
        s.expect(Not(s.damaged[f]), "E5")
        s.expect(And(s.present[f], s.key[f] == k), "E5")
        s.expect(s.version[f] == s.newest, "E2")
        s.expect(s.signature[f] == s.mine, "E1")
        s.reads[k], s.got[k] = True, s.means[f]

    @action
    def miss(s, k: Key):
        """Say that there is no entry to be read."""
        s.expect(forall(File, lambda f: Not(s.readable(f, k))), "E1")
        s.reads[k] = False

    @action
    def name(s, h: Host, x: Text, k: Key):
        """A host computes a key."""
        s.expect(k == s.key_of[x], "E6")
        s.knows[h, x], s.named[h, x] = True, k

    @invariant("E1")
    def says_what_it_means(s, f: File):
        """What is not damaged means what its key and its signature say."""
        return Implies(And(s.present[f], Not(s.damaged[f])), s.means[f] == s.wanted[s.key[f], s.signature[f]])

    @invariant("E5")
    def read_as_wanted(s, k: Key):
        """Whatever was read means what was asked for."""
        return Implies(s.reads[k], s.got[k] == s.wanted[k, s.mine])

    @step("E1", on=("miss",))
    def no_false_refusal(s, t, k: Key, f: File):
        """What can be read is not refused."""
        return Not(s.readable(f, k))

    @step("E2", on=("read",))
    def no_guess(s, t, f: File):
        """No entry is read but in the version that is known; an older one is upgraded first."""
        return s.version[f] == s.newest

    @step("E3", on=("upgrade",))
    def keeps_its_meaning(s, t, f: File):
        """What is whole and known is upgraded, its version and nothing else of it; then it needs no upgrade more."""
        same = And(t.means[f] == s.means[f], t.key[f] == s.key[f], t.signature[f] == s.signature[f])
        return And(s.upgradable(f), same, Not(t.upgradable(f)))

    @step("E4", on=("read",))
    def one_layout(s, t, f: File, j: Key):
        """Whatever else is read has this signature: a chain has one layout."""
        return Implies(s.reads[j], And(s.signature[f] == s.mine, s.got[j] == s.wanted[j, s.mine]))

    @invariant("E6")
    def by_its_contents(s, h: Host, x: Text):
        """A key depends on nothing but what it names."""
        return Implies(s.knows[h, x], s.named[h, x] == s.key_of[x])

    @derived("E6")
    def one_name(s, h: Host, o: Host, x: Text):
        """All hosts call one thing by one key."""
        return Implies(And(s.knows[h, x], s.knows[o, x]), s.named[h, x] == s.named[o, x])
