"""What a command prints: results on standard output, progress on standard error; colours and bars on terminals only."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TextIO

import msgspec
from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from kvspec_cli.errors import BadInput
from kvspec_cli.plain import visible

PLAIN_WIDTH = 100
"""Columns, where the output is no terminal."""

LEAST = 10
"""Columns that are left for each further column of a table, or else its first one is wrapped, too."""

EVERY = 5.0
"""Seconds between two lines of progress, where the output is no terminal."""

Told = Callable[[float, float | None, str], None]
"""Progress: how much is done, of how much (None when that is not known), and what is at hand."""


def follow(tell: Told, seconds: float | None, most: int | None, things: str, wrong: str) -> Callable[[int, int], None]:
    """Progress by time if that is limited, else by how many `things` of at `most` so many, and how many are `wrong`."""
    start = time.monotonic()

    def progress(done: int, bad: int) -> None:
        if seconds is not None:
            tell(min(time.monotonic() - start, seconds), seconds, f"s, {done:,} {things}, {bad:,} {wrong}")
        else:
            tell(done, most, f"{things}, {bad:,} {wrong}")

    return progress


class Screen:
    """Prints lines and tables; or, for `--json`, nothing but one document."""

    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json
        self._out, self._err = _console(sys.stdout), _console(sys.stderr)

    def line(self, text: str = "", style: str = "") -> None:
        """A line of the result. It is not wrapped, so that commands and paths can be copied."""
        if not self.as_json:
            with writing():
                self._out.print(visible(text), style=style or None, markup=False, highlight=False, soft_wrap=True)

    def table(self, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Columns under a head, two blanks between them."""
        if self.as_json:
            return
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        first = max((cell_len(line) for row in (head, *rows) for line in visible(row[0]).split("\n")), default=0)
        fits = first + LEAST * (len(head) - 1) <= self._out.width
        for number, title in enumerate(head):
            table.add_column(title, no_wrap=number == 0 and fits, overflow="fold", min_width=1)
        for row in rows:
            table.add_row(*(escape(visible(cell)) for cell in row))
        if self._out.is_terminal:
            with writing():
                self._out.print(table)
            return
        with writing(), self._out.capture() as captured:  # rich writes an empty text, too
            self._out.print(table)
        for text in captured.get().splitlines():
            self.line(text.rstrip())

    def document(self, data: Any) -> None:
        """The whole result as JSON, if that was asked for."""
        if self.as_json:
            with writing():
                self._out.file.write(msgspec.json.format(msgspec.json.encode(data)).decode() + "\n")

    @contextlib.contextmanager
    def progress(self, title: str) -> Iterator[Told]:
        """A bar while something long runs; a line now and then where the output is no terminal."""
        if self._err.is_terminal:
            texts = TextColumn("{task.description}"), TextColumn("{task.fields[at]}")
            columns = (texts[0], BarColumn(), TimeElapsedColumn(), texts[1])
            with Progress(*columns, console=self._err, transient=True) as bar:
                task = bar.add_task(escape(visible(title)), total=None, at="")
                yield lambda done, of, at: bar.update(task, completed=done, total=of, at=escape(visible(at)))
        else:
            last = time.monotonic()
            self._note(title)

            def tell(done: float, of: float | None, at: str) -> None:
                nonlocal last
                if time.monotonic() - last >= EVERY:
                    last = time.monotonic()
                    self._note(f"{title}: {done:,.0f}{'' if of is None else f' of {of:,.0f}'} {at}".rstrip())

            yield tell

    def _note(self, text: str) -> None:
        self._err.print(visible(text), markup=False, highlight=False, soft_wrap=True)


@contextlib.contextmanager
def writing() -> Iterator[None]:
    """Say of a failure to write that it was standard output's."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise BadInput(f"standard output: {error.strerror}") from None


def _console(file: TextIO) -> Console:
    terminal = file.isatty()
    width = None if terminal else PLAIN_WIDTH
    return Console(file=file, force_terminal=terminal, width=width, highlight=False, emoji=False)
