"""`kvspec engine`: the environments in which engine releases live."""

from typing import TYPE_CHECKING, Annotated

import msgspec
from cyclopts import App, Parameter

from kvspec_cli.errors import BadInput
from kvspec_cli.screen import Screen

if TYPE_CHECKING:
    from kvspec_diff.recipes import Recipe

APP = App(name="engine", help="Install, list and remove the engine releases to test against.")


class Installed(msgspec.Struct, frozen=True):
    """An installed release."""

    engine: str
    version: str
    folder: str


SPEC = Parameter(help="A release, such as sglang==0.5.17.")
JSON = Parameter("--json", negative=(), help="Print one JSON document.")


@APP.command
def install(spec: Annotated[str, SPEC], /, *more: Annotated[str, SPEC], as_json: Annotated[bool, JSON] = False) -> int:
    """Build the environment of each release, unless it is there."""
    from kvspec_diff import engines
    from kvspec_diff.recipes import recipe_for

    screen = Screen(as_json=as_json)
    asked = [engines.parse(each) for each in dict.fromkeys((spec, *more))]
    for engine, version in asked:
        recipe_for(engine, version)
    done = []
    for engine, version in asked:
        with screen.progress(f"installing {engine}=={version}") as tell:
            built = engines.install(engine, version, tell)
        done.append(Installed(built.engine, built.version, str(built.folder)))
        screen.line(f"{built.name} is installed in {built.folder}")
    screen.document(done)
    return 0


@APP.command(name="list")
def list_(*, as_json: Annotated[bool, JSON] = False) -> int:
    """List what is installed, and what could be."""
    from kvspec_diff import engines
    from kvspec_diff.recipes import RECIPES

    screen = Screen(as_json=as_json)
    found = [Installed(each.engine, each.version, str(each.folder)) for each in engines.installed()]
    if found:
        screen.table(("release", "folder"), [(f"{each.engine}=={each.version}", each.folder) for each in found])
    else:
        screen.line(f"No engine is installed in {engines.engines_folder()}.")
    known = ", ".join(dict.fromkeys(f"{recipe.engine}=={end}" for recipe in RECIPES for end in ends(recipe)))
    screen.line(f"Tried: {known}. Install with `kvspec engine install NAME==VERSION`.")
    screen.document(found)
    return 0


def ends(recipe: "Recipe") -> tuple[str, str]:
    """The oldest and the newest release that a recipe installs."""
    return recipe.oldest, recipe.newest


@APP.command
def remove(spec: Annotated[str, SPEC], /, *more: Annotated[str, SPEC], as_json: Annotated[bool, JSON] = False) -> int:
    """Delete the environment of each release."""
    from kvspec_diff import engines

    screen = Screen(as_json=as_json)
    asked = [engines.parse(each) for each in dict.fromkeys((spec, *more))]
    there = {(each.engine, each.version) for each in engines.installed()}
    for engine, version in asked:
        if (engine, version) not in there:
            raise BadInput(f"{engine}=={version} is not installed; `kvspec engine list` shows what is")
    for engine, version in asked:
        engines.remove(engine, version)
        screen.line(f"{engine}=={version} is removed")
    screen.document([f"{engine}=={version}" for engine, version in asked])
    return 0
