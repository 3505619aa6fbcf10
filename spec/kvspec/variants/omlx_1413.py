"""A model of the same name has more layers, and the entries of the other one are read."""

from kvspec.entry_format import EntryFormat, File, Key
from kvspec.language import *


class NameIsNoSignature(EntryFormat, variant="omlx#1413", breaks="E5"):
    """What changes the meaning of the bytes is not in the signature."""

    @action
    def read(s, f: File, k: Key):
        """Take an entry for what it says, whoever wrote it."""
        s.require(And(s.present[f], Not(s.damaged[f]), s.key[f] == k, s.version[f] == s.newest))
        s.reads[k], s.got[k] = True, s.means[f]
