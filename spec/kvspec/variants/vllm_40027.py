"""Admission looks for less than is then asked for."""

from kvspec.admission import Admission, Pool
from kvspec.language import If, action, forall
from kvspec.pages import Request


class AdmitsTooEasily(Admission, variant="vllm#40027", breaks="A1"):
    """What is needed is cut at a chunk when it is looked for, and not when it is handed out."""

    @action
    def admit(s, r: Request):
        """A chunk is one page here."""
        s.require(s.waiting(r))
        chunk = lambda g: If(s.first[r, g] > 1, 1, s.first[r, g])
        s.expect(forall(Pool, lambda g: chunk(g) <= s.free(g)), "A1")
        s.running[r], s.due[r] = True, s.first[r]
        s.promised = lambda g: s.promised[g] + s.first[r, g]
