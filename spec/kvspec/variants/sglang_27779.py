"""Freeing some positions of a page frees the page, though other positions of it are still in use."""

from kvspec.language import And
from kvspec.read_law import ReadLaw


class PartFreesPage(ReadLaw, variant="sglang#27779", breaks="O10"):
    """Where the given-up positions begin inside a page, the page goes too."""

    def cuts(s, k, o, stop, j):
        return And(j < stop, k <= j)
