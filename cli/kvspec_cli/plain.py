"""Text for a terminal."""

CONTROLS = {code: repr(chr(code))[1:-1] for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}
"""Characters that a terminal obeys, and how they are shown."""


def visible(text: str) -> str:
    """The text with control characters shown as Python writes them: traces, names and engines bring them along."""
    return text.translate(CONTROLS)
