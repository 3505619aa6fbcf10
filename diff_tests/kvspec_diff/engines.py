"""Engine environments: what to install for an engine's release, and the folder it lives in.

An engine pins other libraries than kvspec does, so every release gets a virtual environment of its own, under
`engines_folder()`. An environment is built under a temporary name beside its final one, and renamed when all of it
works and its manifest is written: a folder called `<engine>-<version>` is therefore always whole. Whoever installs or
removes holds a lock on the folder, so what an installation finds under a temporary name was left by a killed process;
it deletes that. What is run from an environment is its `bin/python` (scripts hold the folder's first name).
"""

import contextlib
import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import kvspec_record
import msgspec
import platformdirs

from kvspec_diff.recipes import RECIPES, EngineError, Recipe, recipe_for, release

MANIFEST = "kvspec-engine.json"
UNFINISHED = ".unfinished-"
EXAMPLE = ("example", "1")
"""An engine that comes with kvspec (`kvspec_record.example`) and needs no installation."""
Progress = Callable[[int, int, str], None]
"""Called with (step, steps, text): steps count from 1; text is one line, many lines may belong to one step."""


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What stands in an environment's manifest file. `recipe` is a digest of the steps that built it."""

    engine: str
    version: str
    python: str
    recipe: str


class Environment(msgspec.Struct, frozen=True):
    """An installed engine release: `python` is the interpreter that imports it, `adapter` is its worker's adapter."""

    engine: str
    version: str
    folder: Path
    adapter: str
    python: Path

    @property
    def name(self) -> str:
        """`sglang==0.5.17`, as it is written on the command line."""
        return f"{self.engine}=={self.version}"


def engines_folder() -> Path:
    """Where environments live: `$KVSPEC_CACHE/engines`, or the user's cache folder for kvspec."""
    chosen = os.environ.get("KVSPEC_CACHE")
    return (Path(chosen) if chosen else platformdirs.user_cache_path("kvspec")).absolute() / "engines"


def parse(text: str) -> tuple[str, str]:
    """`("sglang", "0.5.17")` for `sglang==0.5.17`; `EngineError` for anything else."""
    engine, separator, version = text.partition("==")
    if not (separator and engine and version):
        raise EngineError(f"{text!r} does not name an engine: write NAME==VERSION, such as sglang==0.5.17")
    return engine, version


def find(engine: str, version: str, recipes: tuple[Recipe, ...] = RECIPES) -> Environment:
    """The installed environment; `EngineError` when there is none, or it no longer works, with what to do about it."""
    if (engine, version) == EXAMPLE:
        return Environment(engine, version, Path(sys.prefix), "example", Path(sys.executable))
    if engine == EXAMPLE[0]:
        raise EngineError(f"there is no {engine}=={version}: the example is {'=='.join(EXAMPLE)}")
    environment = _environment(engine, version, recipe_for(engine, version, recipes))
    if _manifest(environment.folder) is None:
        raise EngineError(f"{environment.name} is not installed: run `kvspec engine install {environment.name}`")
    if not environment.python.exists():
        raise EngineError(
            f"{environment.name}: {environment.python} is gone or points nowhere: run "
            f"`kvspec engine remove {environment.name}`, then `kvspec engine install {environment.name}`"
        )
    return environment


def installed(recipes: tuple[Recipe, ...] = RECIPES) -> list[Environment]:
    """Every whole environment in the folder, by engine and release."""
    found = []
    folders = engines_folder()
    for folder in folders.iterdir() if folders.is_dir() else ():
        manifest = _manifest(folder)
        if manifest is not None and folder.name == f"{manifest.engine}-{manifest.version}":
            with contextlib.suppress(EngineError):
                recipe = recipe_for(manifest.engine, manifest.version, recipes)
                found.append(_environment(manifest.engine, manifest.version, recipe))
    return sorted(found, key=lambda environment: (environment.engine, release(environment.version)))


def install(
    engine: str, version: str, progress: Progress | None = None, recipes: tuple[Recipe, ...] = RECIPES
) -> Environment:
    """Build the environment unless it is there; return it.

    Raises `EngineError` (one line: what, where, what to do) when no recipe covers the release, when a step fails or
    when space runs out. Whatever goes wrong, Ctrl-C included, nothing half built is left behind.
    """
    if (engine, version) == EXAMPLE:
        return find(engine, version)
    recipe = recipe_for(engine, version, recipes)
    steps = len(recipe.steps) + 2
    tell = progress or (lambda step, total, text: None)
    folder = engines_folder() / f"{engine}-{version}"
    digest = hashlib.sha256(msgspec.json.encode(recipe)).hexdigest()[:16]
    with _lock(lambda: tell(1, steps, "waiting for another installation to end")) as engines:
        _sweep(engines)
        manifest = _manifest(folder)
        if manifest is not None and manifest.recipe == digest and (folder / "bin" / "python").exists():
            return find(engine, version, recipes)
        free = shutil.disk_usage(engines).free
        if free < recipe.space:
            raise EngineError(
                f"{engine}=={version} needs {recipe.space / 2**30:.1f} GB in {engines}, where {free / 2**30:.1f} GB "
                f"are free: free some, or set KVSPEC_CACHE to a folder elsewhere"
            )
        unfinished = Path(tempfile.mkdtemp(prefix=f"{UNFINISHED}{folder.name}-", dir=engines))
        try:
            built = unfinished / folder.name
            _build(_environment(engine, version, recipe, built), recipe, tell)
            python = f"{sys.version_info.major}.{sys.version_info.minor}.{sys.version_info.micro}"
            text = msgspec.json.format(msgspec.json.encode(Manifest(engine, version, python, digest)))
            (built / MANIFEST).write_bytes(text + b"\n")
            if folder.exists():
                folder.rename(unfinished / "replaced")
            built.rename(folder)
        except OSError as error:
            raise EngineError(f"{engine}=={version}: {_no_space(str(error), engines) or error}") from error
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    return find(engine, version, recipes)


def remove(engine: str, version: str) -> bool:
    """Delete the environment; False when there is none. It stops being installed at once, then its files go."""
    if not (engine + version).replace(".", "").replace("-", "").isalnum():
        raise EngineError(f"{engine}=={version} does not name an engine")
    folder = engines_folder() / f"{engine}-{version}"
    if not folder.is_dir():
        return False
    with _lock(lambda: None) as engines:
        unfinished = Path(tempfile.mkdtemp(prefix=f"{UNFINISHED}{folder.name}-", dir=engines))
        folder.rename(unfinished / folder.name)
        shutil.rmtree(unfinished, ignore_errors=True)
    return True


def worker_command(environment: Environment, plants: tuple[str, ...] = ()) -> tuple[list[str], dict[str, str]]:
    """The command and the environment variables that start the engine's worker.

    The worker is run as a folder, not found through a path that would show kvspec's own libraries to the engine.
    """
    command = [str(environment.python), str(Path(kvspec_record.__file__).parent), "--adapter", environment.adapter]
    return [*command, *(f"--plant={plant}" for plant in plants)], _variables()


def _variables(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    return kept | {"PYTHONNOUSERSITE": "1", "PYTHONUTF8": "1"} | more


def _environment(engine: str, version: str, recipe: Recipe, folder: Path | None = None) -> Environment:
    folder = folder or engines_folder() / f"{engine}-{version}"
    return Environment(engine, version, folder, recipe.adapter, folder / "bin" / "python")


def _manifest(folder: Path) -> Manifest | None:
    """The folder's manifest, or None when it has none that can be read: then the folder is no environment."""
    try:
        return msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Manifest)
    except (OSError, msgspec.DecodeError):
        return None


@contextlib.contextmanager
def _lock(waiting: Callable[[], None]) -> Iterator[Path]:
    """Hold the lock of the engines' folder, made if need be; `waiting` is called when another process has it."""
    engines = engines_folder()
    try:
        engines.mkdir(parents=True, exist_ok=True)
        handle = os.open(engines / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise EngineError(f"cannot write to {engines}: {error.strerror}; set KVSPEC_CACHE to another folder") from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield engines
    finally:
        os.close(handle)


def _sweep(engines: Path) -> None:
    """Delete what an installation that was killed left behind. Only the lock's holder may call this."""
    for folder in engines.glob(f"{UNFINISHED}*"):
        shutil.rmtree(folder, ignore_errors=True)


def _build(environment: Environment, recipe: Recipe, tell: Progress) -> None:
    """Make the virtual environment, install each step into it, and let the engine's worker answer once."""
    steps = len(recipe.steps) + 2
    scratch = environment.folder.parent / "tmp"
    scratch.mkdir()
    constraints = scratch / "constraints.txt"
    constraints.write_text("".join(f"{pin}\n" for pin in recipe.pinned))
    title = "a virtual environment"
    tell(1, steps, title)
    _run([sys.executable, "-m", "venv", str(environment.folder)], environment, title, lambda line: None)
    pip = [str(environment.python), "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
    pip += ["--progress-bar", "off", "--constraint", str(constraints)]
    for step, (title, arguments) in enumerate(recipe.steps, 2):
        tell(step, steps, title)
        given = [argument.format(version=environment.version) for argument in arguments]
        _run([*pip, *given], environment, title, functools.partial(_tell_pip, tell, step, steps))
    tell(steps, steps, "check that it starts")
    command = worker_command(environment)[0] if recipe.adapter else [str(environment.python), "-c", ""]
    _run(command, environment, "check that it starts", lambda line: None)


def _tell_pip(tell: Progress, step: int, steps: int, line: str) -> None:
    if line.startswith(("Collecting ", "Installing collected", "Building wheel")):
        tell(step, steps, line if len(line) <= 100 else line[:99] + "…")


def _run(command: list[str], environment: Environment, title: str, line: Callable[[str], None]) -> None:
    """Run a step; `EngineError` with the line that tells why it failed. The process never outlives this call."""
    scratch = environment.folder.parent / "tmp"
    process = subprocess.Popen(
        command, env=_variables(TMPDIR=str(scratch)), cwd=scratch, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
    )  # fmt: skip
    said: list[str] = []
    try:
        assert process.stdout is not None
        for text in process.stdout:
            said = [*said[-199:], text.strip()]
            line(said[-1])
        code = process.wait()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()
    if code != 0:
        engines = environment.folder.parent.parent
        reason = _no_space("\n".join(said), engines) or _reason(said, code)
        raise EngineError(f'{environment.name}, step "{title}": {reason}')


def _reason(said: list[str], code: int) -> str:
    """The line of a failed step's output that says most: pip's own error, or the last line."""
    for mark in ("ERROR: No matching distribution", "ERROR: ", "error: "):
        for text in said:
            if text.startswith(mark):
                return text.removeprefix("ERROR: ")
    spoken = [text for text in said if text]
    return spoken[-1] if spoken else f"ended with status {code} and said nothing"


def _no_space(said: str, engines: Path) -> str:
    if "No space left on device" not in said and "Disk quota exceeded" not in said:
        return ""
    return f"no space left in {engines}: free some, or set KVSPEC_CACHE to a folder elsewhere"
