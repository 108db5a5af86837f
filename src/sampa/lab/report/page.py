"""Page: from views to one HTML file that needs nothing else."""

from __future__ import annotations

import base64
import hashlib

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from sampa.lab.report.view import PageView


def render(view: PageView) -> str:
    """The page. All text is escaped; only our own script may run."""
    script = Markup(template("sort.js").render())
    return template("page.html.j2").render(
        view=view, script=script, script_hash=script_hash(script)
    )


def template(name: str) -> Template:
    """A template of this package; what it is given is escaped."""
    environment = Environment(
        loader=PackageLoader("sampa.lab.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(name)


def script_hash(script: str) -> str:
    """What a content security policy names a script by."""
    digest = hashlib.sha256(script.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
