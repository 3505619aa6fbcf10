"""The state of a page in one int32, the same on both paths.

    NULL                      the null page
    (NULL, RELEASED]          deferred: its last holder left in the open group
    (RELEASED, BLANK]         blank
    [1, CACHED)               held by so many, not published
    [CACHED, 2 * CACHED)      published; held by as many as it is above CACHED

A page that its last holder leaves gets RELEASED or BLANK less its place in the call that named it. So a page named
twice in one call shows at no extra cost: one of its places reads back as the other.
"""

import torch

NULL = -(2**31)
RELEASED = -(2**30)
BLANK = -1
CACHED = 2**30

MOST_PAGES = 2**30 - 2
"""So that the places of a call fit between two bounds. Holders of a page fit below `CACHED`, a billion, unchecked."""

UNWRITTEN = -(2**63)
"""The content of a cell that was not written since its page was handed out."""


def condition(page: int, state: int, pages: int) -> str:
    """What is wrong with a page that was expected to be held, in words."""
    if page == 0:
        return "page 0: the null page is nobody's"
    if not 0 < page <= pages:
        return f"page {page}: unknown, the pool has pages 1 to {pages}"
    if state <= RELEASED:
        return f"page {page}: was freed already in the open group"
    if state <= BLANK:
        return f"page {page}: is blank"
    if state == CACHED:
        return f"page {page}: is published and has no holder"
    return f"page {page}: is named twice in one call"


def handed_out(state: torch.Tensor) -> torch.Tensor:
    """Which pages are neither null nor blank, by their states."""
    return (state > BLANK) | ((state > NULL) & (state <= RELEASED))


def first_states(pages: int, device: torch.device) -> torch.Tensor:
    """The states of a new pool, int32[pages + 1]."""
    state = torch.full((pages + 1,), BLANK, dtype=torch.int32, device=device)
    state[0] = NULL
    return state
