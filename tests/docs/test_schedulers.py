"""The files of ``once.md`` for other schedulers, run by these schedulers themselves."""

from __future__ import annotations

import asyncio
import itertools
import re
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any, Final

from apscheduler.events import EVENT_JOB_ERROR, EVENT_JOB_EXECUTED, EVENT_JOB_REMOVED, JobExecutionEvent
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.schedulers.blocking import BlockingScheduler

import asynclock
from asynclock import LeaseSettings
from tests.docs.story import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from apscheduler.events import JobEvent

SETTINGS: Final = LeaseSettings(validity=4.0, max_clock_skew=0.0)
DEADLINE: Final = 60.0
DRIVER: Final = """
import os
import threading
from celery.beat import Scheduler, Service
from celery.contrib.testing.worker import start_worker
from celery.signals import task_postrun
from tasks import app

states, enough = [], threading.Event()

@task_postrun.connect
def count(state, **_):
    states.append(state)
    if len(states) == 5:
        enough.set()

beats = [Service(app, max_interval=0.1, scheduler_cls=Scheduler) for _ in range(2)]
with start_worker(app, pool="threads", concurrency=3, perform_ping_check=False, loglevel="ERROR"):
    for beat in beats:
        threading.Thread(target=beat.start, daemon=True).start()
    assert enough.wait(60)
    print(set(states), flush=True)
    os._exit(0)  # its own end takes 3 s
"""


def shown(name: str, *changed: tuple[str, str]) -> str:
    """Return the file of the page with that name, with some of its texts replaced."""
    page = (ROOT / "docs" / "howto" / "once.md").read_text(encoding="utf-8")
    (text,) = re.findall(rf"```{{code-block}} python\n# {name}\n(.*?)```", page, re.DOTALL)
    for old, new in changed:
        assert text.count(old) == 1
        text = text.replace(old, new)
    return str(text)


def test_of_three_apschedulers_one_runs_the_job(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each runs the file of the page, with a trigger that fires at once, and its job once."""
    url = '"memory://apscheduler", settings=SETTINGS'
    program = shown("jobs.py", ('"s3://bucket/locks"', url), ('"cron", hour=0', '"date"'))
    ended: list[JobExecutionEvent] = []
    start = BlockingScheduler.start

    def start_until_the_job_has_run(scheduler: BlockingScheduler) -> None:
        events = itertools.count(1)  # the job has run, and is removed: from two threads, in any order

        def note(event: JobEvent) -> None:
            if isinstance(event, JobExecutionEvent):
                ended.append(event)
            if next(events) == 2:
                scheduler.shutdown(wait=False)

        scheduler.add_listener(note, EVENT_JOB_EXECUTED | EVENT_JOB_ERROR | EVENT_JOB_REMOVED)
        start(scheduler)

    monkeypatch.setattr(BlockingScheduler, "start", start_until_the_job_has_run)

    def run() -> None:
        names: dict[str, Any] = {"SETTINGS": SETTINGS}
        exec(program, names)  # noqa: S102  the page's
        names["client"].close()

    threads = [threading.Thread(target=run, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE)

    assert [event.exception for event in ended] == [None] * 3
    assert capsys.readouterr().out == "the report is written\n"


async def test_an_asyncio_scheduler_takes_a_coroutine_function() -> None:
    """As the page says; it runs it on the loop, twice, and the job is done once."""
    runs, ended = [], asyncio.Semaphore(0)
    async with asynclock.connect("memory://asyncio-scheduler", settings=SETTINGS) as client:

        @client.once("nightly-report", every=86_400, wait=True)
        async def report() -> None:
            runs.append(asyncio.get_running_loop())

        scheduler = AsyncIOScheduler()
        scheduler.add_listener(lambda _: ended.release(), EVENT_JOB_EXECUTED)
        scheduler.start()
        for _ in range(2):
            scheduler.add_job(report, "date")
        async with asyncio.timeout(DEADLINE):
            for _ in range(2):
                await ended.acquire()
        scheduler.shutdown()

    assert runs == [asyncio.get_running_loop()]


def test_of_the_tasks_of_two_celery_beats_one_runs_the_job(tmp_path: Path) -> None:
    """Two of Celery's beats enqueue the page's task again and again; a worker runs it in three threads."""
    settings = "settings=LeaseSettings(validity=4.0, max_clock_skew=0.0)"
    text = shown(
        "tasks.py",
        ("from asynclock import sync", "from asynclock import LeaseSettings, sync"),
        ('"s3://bucket/locks"', f'"memory://celery", {settings}'),
        ('"redis://localhost"', '"memory://"'),
        ('"schedule": 86_400', '"schedule": 0.1'),
    )
    (tmp_path / "tasks.py").write_text(text)

    done = subprocess.run(
        [sys.executable, "-c", DRIVER],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    # The worker logs what tasks print, to standard error.
    assert (done.stdout + done.stderr).count("the report is written") == 1
    assert done.stdout.endswith("{'SUCCESS'}\n")
