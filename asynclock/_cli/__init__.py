"""The command ``asynclock``.

Importing this package loads neither Spark nor a cloud SDK. A command imports them only when it runs, so that
``asynclock run`` starts fast.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from asynclock._cli.standard_streams import drop_messages, open_standard_streams
from asynclock._codes import Code, coded

if TYPE_CHECKING:
    from collections.abc import Sequence

_NEEDED: Final = ("click", "rich")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command and exit with its code.

    Args:
        arguments: The words after ``asynclock``; None: those of this process.

    Raises:
        SystemExit: Always; the codes are in ``asynclock._cli.exit_codes``.
    """
    open_standard_streams()
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        sentence = f"asynclock: the command needs {' and '.join(missing)}; run: pip install 'asynclock[cli]'"
        sys.stderr.write(f"{coded(sentence, Code.NOT_INSTALLED)}\n")
        sys.exit(2)
    from asynclock._cli.app import run_command  # noqa: PLC0415  needs the extra

    code = run_command(arguments)
    drop_messages()
    sys.exit(code)
