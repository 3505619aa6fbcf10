"""Each process begins its chain of keys with a random number of its own."""

from kvspec.entry_format import EntryFormat, Host, Key, Text
from kvspec.language import *


class OwnSeed(EntryFormat, variant="LMCache#1739", breaks="E6"):
    """Nothing that one process stores is found by another."""

    @action
    def name(s, h: Host, x: Text, k: Key):
        """A host computes a key of its own."""
        s.require(Not(s.knows[h, x]))
        s.knows[h, x], s.named[h, x] = True, k
