"""Places that a command writes to: refused before anything long runs; what appears there is whole."""

import contextlib
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from kvspec_cli.errors import BadInput


def check_file(option: str, path: Path | None) -> None:
    """Refuse what is no place for a file. A device or a pipe is none: it would be replaced by a file."""
    if path is None:
        return
    if path.is_dir():
        raise BadInput(f"{option} {path}: is a folder; name a file")
    if path.exists() and not path.is_file():
        raise BadInput(f"{option} {path}: is not a file; name a file to write")
    _check_parent(option, path)


def check_folder(option: str, path: Path | None) -> None:
    """Refuse what is no place for a new folder."""
    if path is None:
        return
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise BadInput(f"{option} {path}: is there already; name a new or an empty folder")
    _check_parent(option, path)


def _check_parent(option: str, path: Path) -> None:
    parent = path.absolute().parent
    if not parent.is_dir():
        raise BadInput(f"{option} {path}: there is no folder {parent}; make it first")
    try:
        with tempfile.TemporaryFile(dir=parent):
            return
    except OSError as error:
        raise BadInput(f"{option} {path}: cannot write in {parent} ({error.strerror}); name another place") from None


def write_file(path: Path, text: bytes) -> None:
    """Write a file, which appears whole or not at all."""
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        part.write_bytes(text)
        os.replace(part, path)
    except OSError as error:
        raise BadInput(f"{path}: cannot be written ({error.strerror}); nothing was left there") from None
    finally:
        part.unlink(missing_ok=True)


@contextlib.contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """In a `with`: a folder to write to, which becomes `path` with all that is in it, or not at all."""
    part: Path | None = None
    try:
        part = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".part", dir=path.absolute().parent))
        yield part
        part.chmod(0o755)
        os.rename(part, path)
    except OSError as error:
        raise BadInput(f"{path}: cannot be written ({error.strerror}); nothing was left there") from None
    finally:
        if part is not None:
            shutil.rmtree(part, ignore_errors=True)
