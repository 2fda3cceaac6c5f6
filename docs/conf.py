"""How Sphinx builds the site: ``make docs``."""

from __future__ import annotations

import sys
from importlib.metadata import version as version_of
from pathlib import Path
from typing import TYPE_CHECKING

import click
from pygments.lexers.shell import BashLexer

from asynclock._cli.app import command

if TYPE_CHECKING:
    from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))

project = "asynclock"
author = "the authors of asynclock"
project_copyright = "the authors of asynclock, Apache-2.0"
release = version = version_of("asynclock")
extensions = [
    "markdown_twins",
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_click",
    "sphinx_copybutton",
]

myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist"]
myst_heading_anchors = 4

autodoc_typehints = "signature"
autodoc_member_order = "bysource"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True  # without it each attribute would be described twice
napoleon_custom_sections = ["Source"]
python_use_unqualified_type_names = True

text_sectionchars = "=-~^+*"  # the first two are Markdown's

nitpicky = True
nitpick_ignore_regex = [
    # Python, py4j and the SDKs: their inventories are not fetched, so that a build needs no network.
    (r"py:.*", r"(?!asynclock\.).*"),
    # Types in signatures that users never write.
    (r"py:.*", r"asynclock\.(engine|protocol|hudi\.(options|paths))\..*"),
    (r"py:.*", r"asynclock\.spark\.spec\.(column\.Column|column_groups\.GroupSpec)"),
    (r"py:.*", r"asynclock\.spark\.spec\.(dialect\.CsvDialect|kafka_settings\.KafkaSpec)"),
    (r"py:.*", r"asynclock\.(lock|sync\._facade)\.Holdable"),
    (r"py:.*", r"asynclock\._core\.handles\.H"),
    (r"py:.*", r"asynclock\.testing\.(_virtual\.Handle|_clocks\.TrueTime)"),
]
# Names in annotations that asynclock and asynclock.sync both have: the first one is linked.
suppress_warnings = ["ref.python"]

html_theme = "furo"
pygments_dark_style = "monokai"  # the default underlines modules as if they were links
html_title = "asynclock"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True}
copybutton_prompt_text = "$ "
copybutton_exclude = ".linenos, .gp, .go"


def setup(app: Sphinx) -> None:
    """Show a crontab as a shell's language, which Pygments knows, and all commands in the reference."""
    app.add_lexer("crontab", BashLexer)
    command.list_commands(click.Context(command))  # finds those of entry points, which sphinx_click does not
