"""The arithmetic of a page table in pages of `size` cells: positions, entries, slots, windows (R6, O10, O11, C1).

Each function has a contract, in the notation of PEP 316; CrossHair looks for arguments that break it.
"""


def place(position: int, size: int) -> tuple[int, int]:
    """The entry of a position, and the offset in its page.

    pre: position >= 0 and size >= 1
    post: __return__[0] >= 0 and 0 <= __return__[1] < size
    post: __return__[0] * size + __return__[1] == position
    """
    return divmod(position, size)


def slot(page: int, offset: int, size: int) -> int:
    """The address of a cell; it tells the page and the offset, so that no two cells have one address.

    pre: page >= 0 and 0 <= offset < size
    post: place(__return__, size) == (page, offset)
    """
    return page * size + offset


def pages_for(tokens: int, size: int) -> int:
    """How many pages so many positions need: enough, and not one more.

    pre: tokens >= 0 and size >= 1
    post: (__return__ - 1) * size < tokens <= __return__ * size
    """
    return -(-tokens // size)


def touched(start: int, stop: int, size: int) -> range:
    """The entries that hold positions [start, stop), from the first one's to the last one's.

    pre: 0 <= start <= stop and size >= 1
    post: (len(__return__) > 0) == (start < stop)
    post: len(__return__) == 0 or (__return__[0], __return__[-1]) == (start // size, (stop - 1) // size)
    """
    return range(start // size, pages_for(stop, size) if start < stop else 0)


def given_up(entry: int, offset: int, stop: int) -> range:
    """The entries that go whole with the positions from (entry, offset) on, before entry `stop`.

    pre: entry >= 0 and offset >= 0 and stop >= 0
    post: (entry in __return__) == (entry < stop and offset == 0)
    post: (entry + 1 in __return__) == (entry + 1 < stop)
    post: len(__return__) == 0 or (entry <= __return__[0] <= entry + 1 and __return__[-1] == stop - 1)
    """
    return range(entry if offset == 0 else entry + 1, stop)


def window_start(position: int, span: int) -> int:
    """The first position that a step reads which sees `span` positions, its own among them.

    pre: position >= 0 and span >= 1
    post: 0 <= __return__ <= position
    post: position - __return__ == span - 1 or (__return__ == 0 and position < span)
    """
    return max(0, position - span + 1)


def chunk_start(position: int, span: int) -> int:
    """The first position of the chunk of `span` positions that a position stands in.

    pre: position >= 0 and span >= 1
    post: __return__ % span == 0
    post: position - span < __return__ <= position
    """
    return position // span * span
