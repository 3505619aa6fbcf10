"""The HTML report in headless Chromium, driven over a pipe: stepping through a counterexample as a person does.

Without Chromium it is skipped, for a reason that stands in `allowed_skips.txt`; `KVSPEC_BROWSER=required`, as `.ci/run`
sets it, makes that a failure.
"""

import itertools
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from kvspec.operations import Allocate, Configuration, Outcome, Start
from kvspec_cli.main import main
from kvspec_diff import trace
from kvspec_diff.report import html

NO_BROWSER = "chromium is not installed"
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--remote-debugging-pipe",
)  # fmt: skip
BUG = "sglang-34067"
HOSTILE = (
    "</script><script>document.title='owned'</script><img src=http://127.0.0.1:9/x onerror=\"document.title='owned'\">"
)
PATIENCE = 60.0


def browser() -> str:
    """Chromium's program; skips where there is none, unless it is required."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        if os.environ.get("KVSPEC_BROWSER") == "required":
            pytest.fail(f"{NO_BROWSER}, and KVSPEC_BROWSER=required")
        pytest.skip(NO_BROWSER)
    return found


class Chromium:
    """One tab. DevTools messages are JSON, each ended by a zero byte, on the browser's descriptors 3 and 4."""

    def __init__(self, program: str, profile: Path) -> None:
        theirs, self._to = os.pipe()
        self._from, ours = os.pipe()
        high = [os.dup2(fd, 200 + number) for number, fd in enumerate((theirs, ours))]
        wire = f'exec 3<&{high[0]} 4>&{high[1]}; exec "$@"'
        command = ["bash", "-c", wire, "bash", program, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        quiet = subprocess.DEVNULL
        self._process = subprocess.Popen(command, pass_fds=high, stdin=quiet, stdout=quiet, stderr=quiet)
        for fd in (theirs, ours, *high):
            os.close(fd)
        self._numbers, self._rest = itertools.count(1), b""
        self._session: dict[str, str] = {}
        self.events: list[dict[str, Any]] = []
        (page, *_) = (each for each in self.send("Target.getTargets")["targetInfos"] if each["type"] == "page")
        session = self.send("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        self._session = {"sessionId": session}
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """A command's result; events that come before it are kept."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": params, **self._session}
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != number:
            self.events.append(answer)
        assert "error" not in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def _next(self) -> dict[str, Any]:
        end = time.monotonic() + PATIENCE
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._from], [], [], max(0.0, end - time.monotonic()))
            piece = os.read(self._from, 2**16) if ready else b""
            assert piece, "chromium is gone" if ready else "chromium does not answer"
            self._rest += piece
        line, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        return message

    def close(self) -> None:
        """End the browser."""
        self._session = {}
        self.send("Browser.close")
        self._process.wait(PATIENCE)
        os.close(self._to)
        os.close(self._from)

    def open(self, path: Path) -> None:
        """Open a file and wait until it is there."""
        self.events.clear()
        self.send("Page.navigate", url=path.as_uri())
        end = time.monotonic() + PATIENCE
        while self.ask("document.readyState") != "complete" or self.ask("location.href") != path.as_uri():
            assert time.monotonic() < end, "the page does not load"

    def ask(self, expression: str) -> Any:
        """What JavaScript says."""
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def click(self, selector: str) -> None:
        """Press and release the mouse in the middle of an element, which must be on top there."""
        place = f"document.querySelector({selector!r})"
        self.ask(f"{place}.scrollIntoView({{block: 'center', inline: 'center', behavior: 'instant'}})")
        box = self.ask(f"(({place}).getBoundingClientRect()).toJSON()")
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        assert self.ask(f"{place}.contains(document.elementFromPoint({x}, {y}))"), f"{selector} is covered"
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def press(self, key: str) -> None:
        """Press and release a key."""
        codes = {"ArrowLeft": 37, "ArrowRight": 39, "Home": 36, "End": 35, "Tab": 9, "Enter": 13}
        for kind in ("rawKeyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=codes[key])

    def complaints(self) -> list[str]:
        """What the console says, errors that nobody caught, and addresses that were asked for, files aside."""
        self.ask("1")
        found = []
        for event in self.events:
            told = event["params"]
            if event["method"] in ("Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled"):
                found.append(json.dumps(told)[:3000])
            elif event["method"] == "Network.requestWillBeSent" and not told["request"]["url"].startswith(
                ("file:", "data:")
            ):
                found.append(f"asks for {told['request']['url']}")
        return found


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    made = Chromium(browser(), tmp_path_factory.mktemp("profile"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    first = trace.header(Configuration(2, 1), subject=HOSTILE, note=HOSTILE)
    outcomes = (Outcome("done"), Outcome("error", reason=HOSTILE))
    trace.write(folder / "hostile.jsonl", trace.Trace(first, (Start("a", 0), Allocate("a", 1)), outcomes))
    words = ["--variant", BUG, "--findings", "--trace", str(folder / "hostile.jsonl"), "--no-proofs", "--seconds", "0"]
    assert main(["report", *words, "--out", str(folder / "report.html")]) == 1
    return folder / "report.html"


class Seen(NamedTuple):
    """What is on the screen of a run at a step."""

    place: str
    chosen: str
    now: list[str]
    bright: list[list[str]]
    broken: str


LOOK = """(() => {
  const run = document.getElementById('%s');
  const seen = (each) => each.checkVisibility();
  const panels = [...run.querySelectorAll('.panel')].filter(seen);
  const rows = [...run.querySelectorAll('.map tbody tr')];
  const text = (cell) => cell.innerText.trim();
  return {
    place: run.querySelector('[data-place]').innerText,
    chosen: [...run.querySelectorAll('[aria-current]')].map((each) => each.innerText.replace(/\\s+/g, ' ')).join('|'),
    now: panels.flatMap((panel) => [...panel.querySelectorAll('.now b')].map(text)),
    bright: rows.map((row) => [...row.querySelectorAll('td')]
      .filter((cell) => getComputedStyle(cell).opacity === '1').map(text)),
    broken: panels.flatMap((panel) => [...panel.querySelectorAll('.breaks b')].map(text)).join('|'),
  };
})()"""

STEPS = ["0 at first", "1 acquire", "2 begin", "3 release", "4 acquire", "5 end"]
NOW = [
    ["null", "blank", "blank"],
    ["null", "r0", "blank"],
    ["null", "r0", "blank"],
    ["null", "wait", "blank"],
    ["null", "wait", "r0"],
    ["null", "rel", "r0+blank"],
]
EXPECTED = [
    Seen(
        f"Step {at} of 5",
        STEPS[at],
        NOW[at],
        [
            [column[page] if page == 0 or column[page] != "blank" else "blank" for column in NOW[: at + 1]]
            for page in range(3)
        ]
        + [["", "", "", "", "", "\u2717 D1"][: at + 1]],
        "Here D1 is broken." if at == 5 else "",
    )
    for at in range(6)
]


def look(chromium: Chromium) -> Seen:
    return Seen(**chromium.ask(LOOK % BUG))


def walk(chromium: Chromium) -> list[Seen]:
    """Go to the first step, then on to the last, by clicks."""
    chromium.click(f"#{BUG} [data-go=first]")
    seen = [look(chromium)]
    for _ in range(5):
        chromium.click(f"#{BUG} [data-go=next]")
        seen.append(look(chromium))
    return seen


def test_clicking_through_the_steps(chromium: Chromium, report: Path) -> None:
    chromium.open(report)
    assert look(chromium) == EXPECTED[-1]
    assert walk(chromium) == EXPECTED
    assert len({str(seen.now) for seen in EXPECTED}) == 5
    for at in (3, 5, 0, 2):
        chromium.click(f"#{BUG} th:nth-of-type({at + 2}) .pick")
        assert look(chromium) == EXPECTED[at]
    chromium.click(f"#{BUG} [data-go=back]")
    assert look(chromium) == EXPECTED[1]
    chromium.click(f"#{BUG} [data-go=last]")
    assert look(chromium) == EXPECTED[5]
    assert chromium.complaints() == []


def test_the_keyboard_alone(chromium: Chromium, report: Path) -> None:
    chromium.open(report)
    chromium.ask(f"document.querySelector('#{BUG} .pick[aria-current]').focus()")
    for key, at in (("ArrowLeft", 4), ("ArrowLeft", 3), ("ArrowRight", 4), ("Home", 0), ("ArrowLeft", 0), ("End", 5)):
        chromium.press(key)
        assert look(chromium) == EXPECTED[at]
        assert chromium.ask("document.activeElement.getAttribute('aria-current')") == "step"
    chromium.press("Tab")
    assert chromium.ask("document.activeElement.dataset.go") == "first"
    assert chromium.ask("[...document.querySelectorAll('.pick, [data-go]')].every((each) => each.tagName === 'BUTTON')")
    chromium.press("ArrowLeft")
    assert look(chromium) == EXPECTED[4]


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("panel.hidden = number !== at", "panel.hidden = number !== 0"),
        ('classList.toggle("later", Number(cell.dataset.step) > at)', 'classList.toggle("later", false)'),
        ("if (number === at) pick.set", "if (number === 0) pick.set"),
    ],
)
def test_a_page_that_does_not_follow_is_noticed(
    chromium: Chromium, report: Path, tmp_path: Path, right: str, wrong: str
) -> None:
    """The file's own script, with a fault in it."""
    script, text = html.asset("script.js"), report.read_text()
    assert right in script
    faulty = script.replace(right, wrong)
    for old, new in ((script, faulty), (html.digest(script), html.digest(faulty))):
        assert text.count(old) == 1
        text = text.replace(old, new)
    (tmp_path / "faulty.html").write_text(text)
    chromium.open(tmp_path / "faulty.html")
    assert walk(chromium) != EXPECTED


def test_nothing_of_a_file_s_text_runs(chromium: Chromium, report: Path) -> None:
    chromium.open(report)
    assert chromium.ask("document.title") == "kvspec report"
    assert chromium.ask("document.images.length") == 0
    assert chromium.ask("document.body.innerText").count("document.title='owned'") >= 4
    assert chromium.complaints() == []


def test_what_would_be_complained_of(chromium: Chromium, tmp_path: Path) -> None:
    page = tmp_path / "bad.html"
    page.write_text("<img src=http://127.0.0.1:9/x><script>console.error('told'); missing()</script>")
    chromium.open(page)
    found = " ".join(chromium.complaints())
    assert all(text in found for text in ("asks for http://127.0.0.1:9/x", "told", "missing is not defined"))


def test_a_script_that_is_not_the_file_s_own_is_stopped(chromium: Chromium, report: Path, tmp_path: Path) -> None:
    text = report.read_text().replace("</body>", "<script>document.title = 'owned'</script></body>")
    (tmp_path / "more.html").write_text(text)
    chromium.open(tmp_path / "more.html")
    assert chromium.ask("document.title") == "kvspec report"
    assert any("Content Security Policy" in each for each in chromium.complaints())


def test_without_scripts_everything_is_there(chromium: Chromium, report: Path) -> None:
    chromium.send("Emulation.setScriptExecutionDisabled", value=True)
    chromium.open(report)
    seen = chromium.ask(
        f"[...document.querySelectorAll('#{BUG} .panel')].filter((each) => each.checkVisibility()).length"
    )
    buttons = chromium.ask(f"document.querySelector('#{BUG} .walk').checkVisibility()")
    chromium.send("Emulation.setScriptExecutionDisabled", value=False)
    assert (seen, buttons) == (6, False)


CONTRAST = """(() => {
  const light = ([r, g, b]) => [r, g, b].map((c) => c / 255)
    .map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const numbers = (text) => text.match(/[\\d.]+/g).map(Number);
  const ratio = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  const found = {};
  const cell = document.querySelector('.map tbody td');
  for (const owner of %s) {
    cell.className = owner;
    const style = getComputedStyle(cell);
    const painted = style.backgroundImage;
    const grounds = painted === 'none' ? [style.backgroundColor] : painted.match(/rgb\\([^)]*\\)/g);
    found[owner] = Math.min(...grounds.map((ground) => ratio(light(numbers(style.color)), light(numbers(ground)))));
  }
  return found;
})()"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_colour_can_be_read(chromium: Chromium, report: Path, scheme: str) -> None:
    from kvspec_diff.report.cells import COLOURS, LEGEND

    owners = [*(f"r{number}" for number in range(COLOURS)), *LEGEND]
    chromium.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    chromium.open(report)
    found = chromium.ask(CONTRAST % json.dumps(owners))
    paper = chromium.ask("getComputedStyle(document.body).backgroundColor")
    chromium.send("Emulation.setEmulatedMedia", features=[])
    assert {owner: round(ratio, 1) for owner, ratio in found.items() if ratio < 4.5} == {}
    assert len(found) == len(owners)
    assert paper == {"light": "rgb(251, 251, 250)", "dark": "rgb(20, 23, 26)"}[scheme]


def test_a_phone_needs_no_scrolling_sideways(chromium: Chromium, report: Path) -> None:
    size = {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": True}
    chromium.send("Emulation.setDeviceMetricsOverride", **size)
    chromium.open(report)
    wide = chromium.ask("document.documentElement.scrollWidth")
    seen = walk(chromium)
    chromium.send("Emulation.clearDeviceMetricsOverride")
    assert (wide, seen) == (360, EXPECTED)


@pytest.mark.parametrize(("required", "outcome"), [("", pytest.skip.Exception), ("required", pytest.fail.Exception)])
def test_without_a_browser(monkeypatch: pytest.MonkeyPatch, required: str, outcome: type[BaseException]) -> None:
    nothing: Callable[[str], None] = lambda name: None  # noqa: E731
    monkeypatch.setattr(shutil, "which", nothing)
    monkeypatch.setenv("KVSPEC_BROWSER", required)
    with pytest.raises(outcome, match=NO_BROWSER):
        browser()
