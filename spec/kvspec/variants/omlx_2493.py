"""An entry that an older version wrote is kept, and what it has not got is never written."""

from kvspec.entry_format import EntryFormat, File
from kvspec.language import *


class KeepsTheOld(EntryFormat, variant="omlx#2493", breaks="E3"):
    """It is upgraded again and again, and cuts the prefix for ever."""

    @action
    def upgrade(s, f: File):
        """Mark an old entry as seen to, and leave it as it is."""
        s.expect(s.upgradable(f), "E3")
        s.key[f] = s.key[f]
