"""The commands, under the names by which they are called."""

from cyclopts import App

from kvspec_cli import bench, check, diff, engine, explore, prove, replay, report, store


def version() -> str:
    """The installed version."""
    from importlib import metadata

    return metadata.version("kvspec")


APP = App(
    name="kvspec",
    help="The executable specification of KV-cache memory for LLM serving engines. Exit status: 0 if everything holds, "
    "1 if something was found, 2 for bad input.",
    help_format="plaintext",
    version=version,
    suppress_keyboard_interrupt=False,
    result_action="return_value",
)
for command in (check.check, prove.prove, explore.explore, diff.diff, replay.replay, report.report):
    APP.command(command)
APP.command(engine.APP)
APP.command(bench.APP)
APP.command(store.APP)
