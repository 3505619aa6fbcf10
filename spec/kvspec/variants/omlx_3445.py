"""An unknown class of cache is restored as a plain one."""

from kvspec.entry_format import EntryFormat, File, Key
from kvspec.language import *


class GuessesTheUnknown(EntryFormat, variant="omlx#3445", breaks="E2"):
    """A window is then read as if it had everything."""

    @action
    def read(s, f: File, k: Key):
        """Take an entry of any version."""
        s.require(And(s.present[f], Not(s.damaged[f]), s.key[f] == k, s.signature[f] == s.mine))
        s.reads[k], s.got[k] = True, s.means[f]
