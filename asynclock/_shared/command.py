"""The parts of the command ``asynclock`` of which the verbs of the pipeline are made."""

from __future__ import annotations

from asynclock._cli.arguments import json_option
from asynclock._cli.durations import duration
from asynclock._cli.exit_codes import DONE, NO, NOT_ACQUIRED, UNAVAILABLE, USAGE, exit_code
from asynclock._cli.groups import CommandGroup
from asynclock._cli.option_words import environment_names
from asynclock._cli.output import print_json, tell
from asynclock._cli.run_command import run_under

__all__ = [
    "DONE",
    "NO",
    "NOT_ACQUIRED",
    "UNAVAILABLE",
    "USAGE",
    "CommandGroup",
    "duration",
    "environment_names",
    "exit_code",
    "json_option",
    "print_json",
    "run_under",
    "tell",
]
