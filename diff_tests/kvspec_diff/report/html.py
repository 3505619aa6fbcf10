"""The report as one HTML file: no network, no other file. Everything that comes from outside is escaped."""

import base64
import hashlib
import re
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from kvspec_diff.report.data import Report


def render(report: Report) -> str:
    """The whole file. Style and script are the only ones that its content security policy lets run."""
    style, script = asset("style.css"), asset("script.js")
    text: str = _environment().get_template("report.html").render(
        report=report,
        known_laws={row.law for row in report.laws},
        proved=sum(proof.proved for proof in report.proofs),
        obligations=sum(len(proof.obligations) for proof in report.proofs),
        programs=sum(each.figures.get("runs", 0) for each in report.comparisons),
        style=Markup(style),
        script=Markup(script),
        style_hash=digest(style),
        script_hash=digest(script),
    )  # fmt: skip
    return text


def asset(name: str) -> str:
    """A file of the page."""
    return (files("kvspec_diff.report") / "page" / name).read_text("utf-8")


def digest(text: str) -> str:
    """How a content security policy names an inline style or script."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def prose(text: str) -> Markup:
    """A sentence with its web addresses as links and its `code` as code; everything in it is escaped."""
    parts = []
    for number, part in enumerate(re.split(r"(https?://[^\s\"'<>`]*[^\s\"'<>`.,;:)]|`[^`]+`)", text)):
        if number % 2 == 0:
            parts.append(escape(part))
        elif part.startswith("`"):
            parts.append(Markup("<code>{}</code>").format(part[1:-1]))
        else:
            parts.append(Markup('<a href="{}" rel="noreferrer noopener">{}</a>').format(part, part))
    return Markup("").join(parts)


@cache
def _environment() -> Any:
    made = Environment(
        loader=PackageLoader("kvspec_diff.report", "page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters["prose"] = prose
    return made
