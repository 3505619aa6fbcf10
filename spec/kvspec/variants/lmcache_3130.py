"""Evicting in a batch returns memory directly, past the reference counts, under a reader."""

from kvspec.language import action
from kvspec.pages import Page
from kvspec.read_law import ReadLaw


class EvictsHeld(ReadLaw, variant="LMCache#3130", breaks="O4"):
    """Eviction asks whether a page is cached, and not whether somebody holds it."""

    @action
    def evict(s, p: Page):
        """Take a page out of the cache; it is blank."""
        s.expect(s.cached[p], "O4")
        s.cached[p], s.blank[p] = False, True
