"""Programs, their outcomes and what is wrong with them: as text, and as trace files."""

import hashlib
import shlex
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from kvspec_diff import trace
from kvspec_diff.program import operation_name

from kvspec_cli.errors import BadInput
from kvspec_cli.screen import Screen

if TYPE_CHECKING:
    from kvspec.operations import AnyOperation, Configuration, Outcome
    from kvspec_diff.targets import Examined, Fault


def call(operation: "AnyOperation") -> str:
    """`allocate(row=a, tokens=3)`."""
    fields = msgspec.structs.asdict(operation)
    given = {name: value for name, value in fields.items() if value is not False}
    return f"{operation_name(operation)}({', '.join(f'{name}={value}' for name, value in given.items())})"


def came(outcome: "Outcome | None") -> str:
    """What came of an operation, without what is empty; blank pages in the order they will be handed out."""
    if outcome is None:
        return ""
    words: list[str] = [] if outcome.status == "done" else [outcome.status]
    for name in ("pages", "slots", "tokens", "blank"):
        numbers = getattr(outcome, name)
        if numbers:
            words.append(f"{name} {' '.join(map(str, numbers))}")
    if outcome.blank == ():
        words.append("nothing blank")
    return ", ".join(words) or outcome.status


def pool(configuration: "Configuration") -> str:
    """`4 pages of 1 slot`."""
    pages, size = configuration.pages, configuration.page_size
    return f"{pages} page{'s' * (pages != 1)} of {size} slot{'s' * (size != 1)}"


def print_program(screen: Screen, examined: "Examined") -> None:
    """The operations and what came of each."""
    operations, outcomes = examined.program.operations, examined.outcomes
    rows = [
        (f"{index}  {call(operation)}", came(outcomes[index] if index < len(outcomes) else None))
        for index, operation in enumerate(operations)
    ]
    screen.line(f"  on {pool(examined.program.configuration)}:")
    screen.table(("operation", "what came of it"), rows)


def said(fault: "Fault") -> str:
    """`operation 5, end, breaks D1: ...`."""
    if not fault.operation:
        return fault.explanation
    verb = "raised" if fault.law == "raised" else f"breaks {fault.law}"
    return f"operation {fault.index}, {fault.operation}, {verb}: {fault.explanation}"


def as_trace(examined: "Examined", subject: str, law: str = "", note: str = "") -> trace.Trace:
    """The run as a trace."""
    operations, outcomes = examined.program.operations, examined.outcomes
    padded: list[Any] = [*outcomes, *[None] * (len(operations) - len(outcomes))]
    first = trace.header(examined.program.configuration, subject=subject, law=law, note=note)
    return trace.Trace(first, operations, tuple(padded))


def file_name(subject: str, law: str, examined: "Examined") -> str:
    """`sglang-0.5.17-D1-3f2a9c01.jsonl`: the same run of the same subject has the same name."""
    digest = hashlib.sha256(msgspec.json.encode([subject, examined.program])).hexdigest()[:8]
    return f"{subject.split()[0].replace('==', '-')}-{law}-{digest}.jsonl"


def traces_folder(chosen: Path | None) -> Path:
    """The folder for traces, made and tried: `chosen`, or the one in the user's state folder."""
    import platformdirs

    folder = (chosen or platformdirs.user_state_path("kvspec") / "traces").absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError as error:
        raise BadInput(f"cannot save to {folder} ({error.strerror}); name another folder with --save") from None


def replay_command(path: Path, subject: str, plants: tuple[str, ...] = ()) -> str:
    """The command that runs a saved trace again on the subject it was found on."""
    release = subject.split()[0]
    which = f"--engine {release}" if "==" in release else f"--subject {release.partition('-')[0]}"
    return " ".join(["kvspec replay", shlex.quote(str(path)), which, *(f"--plant {plant}" for plant in plants)])
