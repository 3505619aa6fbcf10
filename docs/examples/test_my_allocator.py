from kvspec_diff.conformance import Allocator, Conformance


class Mine(Allocator):
    def __init__(self, pages):
        self.free = [list(range(1, pages + 1))]  # lists of pages; page 0 is padding

    def allocate(self, n):
        free = self.blank()
        self.free = [free[n:]] if n <= len(free) else self.free
        return free[:n] if n <= len(free) else None

    def release(self, pages):
        self.free.append(list(pages))

    def blank(self):
        return [page for pages in self.free for page in pages]


class TestMine(Conformance):
    allocator = Mine
