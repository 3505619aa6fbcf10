"""A state block is read before its first write, with the bytes of the request that had it before."""

from kvspec.language import action
from kvspec.pages import Entry, Offset, Request
from kvspec.read_law import ReadLaw


class ReadsUnwritten(ReadLaw, variant="vllm#56524", breaks="R4"):
    """A position counts as settled once its page is there."""

    @action
    def settle(s, r: Request, k: Entry, o: Offset):
        """From here on the position may be read."""
        s.require(s.live[r, k])
        s.expect(s.content[s.row[r, k], o] == s.prefix[r, k, o], "R1")
        s.settled[r, k, o] = True
