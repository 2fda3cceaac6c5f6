from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from asynclock import LeaseLostError, LeaseSettings, sync
from tests.cli.command import asynclock, locks, status

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOSTILE = "\x1b]0;owned\x07\x9b31m\u202eroot[bold]"


@pytest.fixture
def held(folder: Path) -> Iterator[sync.Lease]:
    """The lock ``nightly``, held by this process."""
    settings = LeaseSettings(validity=60, max_clock_skew=0)
    url = f"file://{folder}"
    with (
        sync.connect(url, settings=settings, holder="tester") as client,
        client.lock("nightly").hold() as lease,
    ):
        yield lease


def rewrite(folder: Path, **fields: object) -> None:
    """Change fields of a lock file by hand."""
    path = folder / "nightly.json"
    path.write_bytes(json.dumps(json.loads(path.read_bytes()) | fields).encode())


def test_status_of_a_lock_that_never_was(folder: Path, target: str) -> None:
    """A missing object is absent, which is not free, and looking creates nothing."""
    folder.mkdir()

    ran = asynclock("status", target)

    assert (ran.returncode, ran.stderr) == (0, "")
    assert "nightly: absent" in ran.stdout
    assert status(target)["state"] == "absent"
    assert locks(folder) == []


@pytest.mark.parametrize("words", [("status", "/nightly"), ("list", "/"), ("break", "/nightly", "--yes")])
def test_a_missing_folder_is_an_error(folder: Path, words: tuple[str, ...]) -> None:
    """Nothing can be seen in a folder that does not exist: 69, and no state is claimed."""
    ran = asynclock(words[0], f"file://{folder}{words[1]}", *words[2:])

    assert (ran.returncode, ran.stdout) == (69, "")
    assert f"the folder {folder} does not exist" in ran.stderr
    assert not folder.exists()


@pytest.mark.parametrize("words", [("status",), ("break", "--yes"), ("run", "true")])
def test_the_url_of_an_object_is_refused_with_the_locks_own(
    folder: Path, target: str, words: tuple[str, ...]
) -> None:
    """A pasted URL that ends in .json would name another lock, so the right one is named."""
    ran = asynclock(words[0], f"{target}.json", *words[1:])

    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.strip().endswith(f"the lock itself is {target} [AL-002]")
    assert locks(folder) == []


@pytest.mark.parametrize("words", [("status",), ("list",), ("run", "true"), ("break", "--yes")])
def test_a_hudi_table_is_recognized(tmp_path: Path, words: tuple[str, ...]) -> None:
    """A lock beside a table would keep no writer out: 2, and the right command is named."""
    (tmp_path / "orders" / ".hoodie").mkdir(parents=True)
    (tmp_path / "orders" / ".hoodie" / "hoodie.properties").write_text("hoodie.table.name=orders\n")

    ran = asynclock(words[0], f"file://{tmp_path}/orders", *words[1:])

    assert (ran.returncode, ran.stdout) == (2, "")
    assert "is a Hudi table" in ran.stderr
    assert "asynclock hudi" in ran.stderr
    assert locks(tmp_path) == ["orders"]


@pytest.mark.parametrize("name", ["nightly", ".nightly", ".team/x", "a.lock", ".x.lock"])
def test_names_that_are_shown_can_be_pasted_back(folder: Path, name: str) -> None:
    """What run accepts list shows, and the URL that it shows is that of the same lock."""
    url = f"file://{folder}"
    assert asynclock("run", f"{url}/{name}", "--", "true").returncode == 0

    (line,) = asynclock("list", f"{url}/", "--json").stdout.splitlines()

    listed = json.loads(line)
    assert (listed["name"], listed["url"]) == (name, f"{url}/{name}")
    assert status(listed["url"])["owner"] == listed["owner"]


def test_a_list_of_nothing_says_so(folder: Path) -> None:
    """An empty list is a sentence on the standard error, and JSON has no line."""
    folder.mkdir()

    ran = asynclock("list", f"file://{folder}/", "--json")

    assert (ran.returncode, ran.stdout) == (0, "")
    assert f"no locks under file://{folder}" in ran.stderr


def test_status_says_who_holds_it(held: sync.Lease, target: str) -> None:
    """Text shows the holder, the owner and the token."""
    shown = asynclock("status", target).stdout

    assert "nightly: held" in shown
    assert all(word in shown for word in ("tester", held.owner, str(held.fencing_token)))


def test_status_as_json_has_the_fields_of_the_dataclass(held: sync.Lease, folder: Path, target: str) -> None:
    """--json prints one object with the fields of LockStatus."""
    lines = asynclock("status", target, "--json").stdout.splitlines()

    with sync.connect(f"file://{folder}") as client:
        expected = client.lock("nightly").status()
    shown = json.loads(lines[0])
    assert len(lines) == 1
    assert list(shown) == list(type(expected).__slots__)
    assert (shown["state"], shown["owner"], shown["version"]) == ("held", held.owner, expected.version)


def test_list_shows_every_lock(held: sync.Lease, folder: Path) -> None:
    """Each lock under the URL is a row of the text and a line of the JSON."""
    asynclock("run", f"file://{folder}/team/weekly", "--", "true")

    text = asynclock("list", f"file://{folder}/").stdout
    lines = asynclock("list", f"file://{folder}/", "--json").stdout.splitlines()

    assert [line.split()[:2] for line in text.splitlines()[1:]] == [
        ["nightly", "held"],
        ["team/weekly", "free"],
    ]
    assert next(json.loads(line)["fencing_token"] for line in lines) == held.fencing_token
    assert [json.loads(line)["name"] for line in lines] == ["nightly", "team/weekly"]


def test_hostile_holder_is_escaped(folder: Path, target: str) -> None:
    """Control characters, markup and direction marks of a lock file never reach the terminal."""
    asynclock("run", target, "--", "true")
    rewrite(folder, holder=HOSTILE, owner=HOSTILE, expired=False)

    shown = [
        asynclock("status", target),
        asynclock("list", f"file://{folder}/"),
        asynclock("status", target, "--json"),
        asynclock("break", target, "--yes"),
        asynclock("run", target, "--wait", "0", "--", "true"),
        asynclock("run", target, "--wait", "1", "--", "true"),
    ]

    texts = [ran.stdout + ran.stderr for ran in shown]
    assert all(text.replace("\n", "").isprintable() and text.isascii() for text in texts)
    assert all("[bold]" in text for text in texts)
    assert json.loads(shown[2].stdout)["holder"] == HOSTILE


def test_corrupt_lock_is_65(folder: Path, target: str, tmp_path: Path) -> None:
    """A corrupt lock file gives 65, is named, and is neither taken nor changed; break replaces it."""
    folder.mkdir()
    (folder / "nightly.json").write_bytes(b'{"expired":fal')

    codes = [
        asynclock("status", target).returncode,
        asynclock("list", f"file://{folder}/").returncode,
        (ran := asynclock("run", target, "--wait", "0", "--", "touch", str(tmp_path / "ran"))).returncode,
    ]

    assert codes == [65, 65, 65]
    assert "lock 'nightly' is corrupt (not JSON)" in ran.stderr
    assert "asynclock break" in ran.stderr
    assert not (tmp_path / "ran").exists()
    assert (folder / "nightly.json").read_bytes() == b'{"expired":fal'
    assert asynclock("break", target, "--yes", "--force").returncode == 0
    assert asynclock("run", target, "--", "true").returncode == 0


def test_lines_name_the_lock_and_not_its_object() -> None:
    """Errors of the store, waits, time-outs and lists of what is lost say ``team/nightly``."""
    place = "s3://bucket-x/locks"
    options = ("endpoint_url=http://127.0.0.1:1", "allow_http=true", "region=x", "access_key_id=a")
    words = [word for option in (*options, "secret_access_key=env:HOME") for word in ("-o", option)]

    said = [
        asynclock("status", f"{place}/team/nightly", *words).stderr,
        asynclock("run", f"{place}/team/nightly", "--wait", "1", *words, "true").stderr,
        asynclock("run", f"{place}/team/nightly", "-v", "--wait", "0", *words, "true").stderr,
        asynclock("list", place, *words).stderr,
    ]

    assert all("failed: " in text and ".json" not in text for text in said)
    assert all("nightly" in text for text in said[:3])
    assert "''" not in said[3]


def test_break_of_a_corrupt_object_needs_force(folder: Path, target: str) -> None:
    """Without --force its size, its first bytes and the reason are shown, and nothing is written: 65."""
    folder.mkdir()
    (folder / "nightly.json").write_bytes(b'{"expired":fal\x1b[31m')

    ran = asynclock("break", target, "--yes")

    assert (ran.returncode, ran.stdout) == (65, "")
    assert all(word in ran.stderr for word in ("19 bytes", '{"expired":fal\\x1b[31m', "not JSON", "--force"))
    assert (folder / "nightly.json").read_bytes() == b'{"expired":fal\x1b[31m'


@pytest.mark.parametrize("body", [b'{"version": 3, "name": "app"}\n', b"[1, 2]", b'"text"', b"{}"])
def test_break_never_overwrites_what_is_no_lock(folder: Path, target: str, body: bytes) -> None:
    """Valid JSON without a field of a lock is somebody's file: refused even with --force."""
    folder.mkdir()
    (folder / "nightly.json").write_bytes(body)

    ran = asynclock("break", target, "--yes", "--force")

    assert (ran.returncode, ran.stdout) == (65, "")
    assert "It is not a lock" in ran.stderr
    assert (folder / "nightly.json").read_bytes() == body


def test_break_of_a_live_lock_needs_force(held: sync.Lease, target: str) -> None:
    """Without --force a live lock is left alone: 1, the holder is shown, nothing is written."""
    ran = asynclock("break", target, "--yes")

    assert ran.returncode == 1
    assert all(word in ran.stderr for word in ("tester", "--force"))
    assert status(target)["owner"] == held.owner
    held.confirm()


def test_break_with_force_frees_a_live_lock(folder: Path, target: str) -> None:
    """--force frees it, keeps the token, and warns of the old holder."""
    with sync.connect(f"file://{folder}") as client:
        lease = client.lock("nightly").acquire()
        ran = asynclock("break", target, "--yes", "--force", "--json")

    broken = json.loads(ran.stdout)
    assert ran.returncode == 0
    assert (broken["state"], broken["fencing_token"]) == ("free", lease.fencing_token)
    assert "may act until its next renewal" in ran.stderr


def test_break_goes_through_renewals(folder: Path, target: str) -> None:
    """Renewals between the look and the write do not keep a live lock from being broken."""
    settings = LeaseSettings(validity=2, renew_interval=0.01, max_clock_skew=0)
    with sync.connect(f"file://{folder}", settings=settings) as client:
        lease = client.lock("nightly").acquire()
        ran = asynclock("break", target, "--yes", "--force")
        with pytest.raises(LeaseLostError):
            lease.release()

    assert (ran.returncode, ran.stdout) == (0, "nightly: was held, now free\n")


def test_break_of_a_free_lock_writes_nothing(folder: Path, target: str) -> None:
    """There is nothing to break: 0, and nothing is created."""
    folder.mkdir()
    ran = asynclock("break", target, "--yes")

    assert (ran.returncode, ran.stdout) == (0, "nightly: absent, there is nothing to break\n")
    assert locks(folder) == []


def test_break_without_anybody_to_ask_is_2(held: sync.Lease, target: str) -> None:
    """Without --yes and without a terminal nothing is done."""
    ran = asynclock("break", target, "--force")

    assert ran.returncode == 2
    assert "--yes" in ran.stderr
    held.confirm()


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["status", "nightly"], "nightly"),
        (["status", "s3n://bucket/nightly"], "s3n://bucket"),
        (["status", "file:///"], "file:///"),
        (["status", "{url}/.."], ".."),
        (["run", "{url}/a b", "--", "true"], "a b"),
        (["run", "{url}/../x", "--", "true"], "'..'"),
        (["run", "{url}/a", "--validity", "0.01", "--", "true"], "validity=0.01"),
        (["run", "{url}/a", "--validity", "nan", "--", "true"], "--validity"),
        (["run", "{url}/a", "--max-clock-skew", "-1", "--", "true"], "--max-clock-skew"),
        (["run", "{url}/a", "--wait", "-1", "--", "true"], "--wait"),
        (["run", "{url}/a", "--at-least", "-1", "--", "true"], "--at-least"),
        (["run", "{url}/a", "--at-least", "700000", "--", "true"], "7 days"),
        (["run", "{url}/a", "--at-most", "20", "--", "true"], "at_most=20"),
        (["run", "{url}/a", "--note", "a\tb", "--", "true"], "note"),
        (["run", "{url}/a", "--holder", "x" * 257, "--", "true"], "holder"),
        (["run", "{url}/a", "-o", "region=x", "--", "true"], "region"),
        (["run", "{url}/a", "-o", "fsync=maybe", "--", "true"], "fsync"),
        (["run", "{url}/a", "-o", "holder=x", "--", "true"], "holder"),
        (["run", "{url}/a", "-o", "fsync", "--", "true"], "KEY=VALUE"),
        (["run", "{url}/a"], "CMD"),
        (["run", "{url}/a", "--unknown", "--", "true"], "--unknown"),
        (["pipeline", "validate", "{url}/none.toml"], "none.toml"),
    ],
)
def test_wrong_words_are_2(folder: Path, words: list[str], named: str) -> None:
    """A wrong URL, name, setting or option gives 2, names it, and creates nothing."""
    ran = asynclock(*(word.format(url=f"file://{folder}") for word in words))

    assert ran.returncode == 2
    assert named in ran.stderr
    assert "Traceback" not in ran.stderr
    assert locks(folder) == []


def test_doctor_of_a_good_store(folder: Path) -> None:
    """A local folder is safe for locks: 0, every finding is shown, no object is left behind."""
    text = asynclock("doctor", f"file://{folder}")
    report = json.loads(asynclock("doctor", f"file://{folder}", "--json").stdout)

    assert (text.returncode, report["safe"], report["backend"]) == (0, True, "file")
    assert all(found["check"] in text.stdout for found in report["findings"])
    assert [name for name in locks(folder) if name.endswith(".json")] == []


def test_doctor_of_a_bad_store_is_1(tmp_path: Path) -> None:
    """A store that cannot be written is not safe: 1, and it is said why."""
    (tmp_path / "file").write_text("no folder")

    ran = asynclock("doctor", f"file://{tmp_path}/file/locks")

    assert ran.returncode == 1
    assert "NOT safe" in ran.stdout


def test_secret_in_a_url_is_not_shown() -> None:
    """A password in a URL is refused and not repeated."""
    ran = asynclock("status", "s3://key:hush@bucket/nightly")

    assert ran.returncode == 2
    assert "hush" not in ran.stderr


def test_unreachable_store_is_69(tmp_path: Path) -> None:
    """A store that refuses gives 69 and says what was not written."""
    (tmp_path / "file").write_text("no folder")

    ran = asynclock("run", f"file://{tmp_path}/file/nightly", "--wait", "0", "--", "true")

    assert ran.returncode == 69
    assert "nothing was written" in ran.stderr


@pytest.mark.parametrize("name", ["click", "rich"])
def test_missing_extra_is_2(name: str) -> None:
    """Without the extra the command says how to get it."""
    script = (
        f"import sys; from importlib import util; found = util.find_spec\n"
        f"util.find_spec = lambda n, *r: None if n == '{name}' else found(n, *r)\n"
        "from asynclock._cli import main; main(['list', 'memory://'])"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)

    assert ran.returncode == 2
    assert name in ran.stderr
    assert "pip install 'asynclock[cli]'" in ran.stderr


def test_missing_pyspark_is_2(tmp_path: Path) -> None:
    """Without pyspark the pipeline commands say how to get it."""
    (tmp_path / "in").mkdir()
    (tmp_path / "spec.toml").write_text(
        '[table]\npath = "table"\nkey = ["k"]\n[locks]\nurl = "locks"\n[services]\n[streams.a]\n'
        'source = "in/*"\nformat = "csv"\nordering = "at"\ncheckpoint = "cp"\ncolumns = { at = "bigint" }\n'
    )
    script = (
        "import sys; sys.modules['pyspark'] = None\n"
        f"from asynclock._cli import main; main(['pipeline', 'run', {str(tmp_path / 'spec.toml')!r}])"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)

    assert ran.returncode == 2
    assert "pip install 'asynclock[spark]'" in ran.stderr
    assert locks(tmp_path / "table") == []


def test_import_is_light() -> None:
    """The command's modules load neither Spark nor a cloud SDK."""
    script = (
        "import sys, asynclock._cli.app\n"
        "print(*({'pyspark', 'aiobotocore', 'botocore', 'gcloud', 'azure', 'rich'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)

    assert (ran.stdout, ran.returncode) == ("\n", 0)
