"""Writes ``llms.txt``, and next to each page of the site the same in Markdown.

Programs that read the documentation get it without navigation and markup.

Source: https://llmstxt.org describes the list.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from docutils import nodes
from sphinx.writers.text import TextTranslator

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sphinx.application import Sphinx

_FENCE: Final = "```"
_TOCTREE: Final = re.compile(rf"^{_FENCE}{{toctree}}.*?^{_FENCE}\n", re.MULTILINE | re.DOTALL)
_INCLUDED: Final = re.compile(rf"^{_FENCE}{{include}} (.*)\n{_FENCE}\n", re.MULTILINE)
_RST: Final = f"{_FENCE}{{eval-rst}}"
_MENU: Final = "index"


def _title(app: Sphinx, page: str) -> str:
    return app.env.titles[page].astext()


def _pages(app: Sphinx, parent: str = _MENU) -> Iterator[str]:
    """Yield a page and those below it, in the order of the menu."""
    yield parent
    for page in app.env.toctree_includes.get(parent, ()):
        yield from _pages(app, page)


def _relative(page: str, parent: str) -> str:
    return posixpath.relpath(page, posixpath.dirname(parent))


def _twin(app: Sphinx, page: str) -> str:
    """Return a page as Markdown."""
    path = Path(app.env.doc2path(page))
    source = _INCLUDED.sub(
        lambda found: (path.parent / found[1]).read_text(encoding="utf-8"), path.read_text(encoding="utf-8")
    )
    if _RST in source:  # made from docstrings: as text, whose headings are Markdown's too
        tree = app.env.get_and_resolve_doctree(page, app.builder)
        translator = TextTranslator(tree, app.builder)
        tree.walkabout(translator)
        return f"{translator.body}\n"
    below = [
        f"- [{_title(app, each)}]({_relative(each, page)}.md)\n"
        for each in app.env.toctree_includes.get(page, ())
    ]
    return _TOCTREE.sub(lambda found: "" if ":hidden:" in found[0] else "".join(below), source)


def _summary(app: Sphinx, page: str) -> str:
    """Return the first sentence of a page."""
    first = next(iter(app.env.get_doctree(page).findall(nodes.paragraph)), None)
    text = "" if first is None else " ".join(first.astext().split())
    return re.split(r"(?<=[.:])\s", text, maxsplit=1)[0].rstrip(":.")


def _list(app: Sphinx) -> str:
    """Return ``llms.txt``: each page of the menu with its first sentence."""
    lines = [f"# {app.config.project}", "", f"> {_summary(app, _MENU)}."]
    plain = [page for page in app.env.toctree_includes[_MENU] if page not in app.env.toctree_includes]
    alone = sorted(app.env.found_docs - {*_pages(app)})
    groups = [("Pages", [_MENU, *plain, *alone])]
    groups += [
        (_title(app, page), [*_pages(app, page)])
        for page in app.env.toctree_includes[_MENU]
        if page not in plain
    ]
    for title, pages in groups:
        lines += ["", f"## {title}", ""]
        lines += [f"- [{_title(app, page)}]({page}.md): {_summary(app, page)}" for page in pages]
    return "\n".join(lines) + "\n"


def _write(app: Sphinx, error: Exception | None) -> None:
    if error is not None or app.builder.name != "html":
        return
    site = Path(app.outdir)
    for page in app.env.found_docs:
        (site / f"{page}.md").write_text(_twin(app, page), encoding="utf-8")
    (site / "llms.txt").write_text(_list(app), encoding="utf-8")


def _link(_: Sphinx, page: str, __: str, context: dict[str, Any], tree: nodes.document | None) -> None:
    """Name the twin in the head of the page."""
    if tree is not None:
        name = page.rpartition("/")[2]
        context["metatags"] += f'<link rel="alternate" type="text/markdown" href="{name}.md">\n'


def setup(app: Sphinx) -> dict[str, bool]:
    """Write them at the end of a build."""
    app.connect("html-page-context", _link)
    app.connect("build-finished", _write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
