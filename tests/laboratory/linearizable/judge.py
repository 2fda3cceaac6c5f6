"""Porcupine, which judges histories: nobody here wrote it, and it knows nothing of this library."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.laboratory._installed import go_program

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.laboratory.linearizable.histories import History

_SOURCE: Final = Path(__file__).with_name("judge")


def judge(histories: Sequence[History]) -> list[str]:
    """Return the verdict on each history: ``ok``, ``illegal``, or ``undecided`` after two minutes.

    Source: A. Athalye, "Porcupine: a fast linearizability checker in Go".

    Raises:
        RuntimeError: The judge could not be built.
    """
    done = subprocess.run(
        [go_program("judge", _SOURCE)],
        input=json.dumps([each.as_json() for each in histories]),
        capture_output=True,
        text=True,
        check=True,
    )
    return [each["verdict"] for each in json.loads(done.stdout)]
