"""Bad input is refused at once, with the offending name and the remedy, and nothing is created."""

from __future__ import annotations

import os
import pickle
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import asynclock
import asynclock.backends
from asynclock import ConfigError, LeaseSettings, hudi, sync
from asynclock.client import LockClient

BAD_NAMES = {
    "empty": "",
    "dot": ".",
    "dots": "..",
    "up": "../orders",
    "up inside": "a/../orders",
    "dot inside": "a/./orders",
    "absolute": "/orders",
    "trailing slash": "orders/",
    "empty segment": "a//b",
    "space": "my orders",
    "backslash": "a\\b",
    "NUL": "a\0b",
    "line end": "orders\n",
    "colon": "a:b",
    "unicode": "bestellungen-ä",
    "percent": "a%2fb",
    "too long": "x" * 513,
    "of a probe": ".asynclock-probe-00000000-0000-4000-8000-000000000000-1",
    "doubled": "orders.json.json",
    "number": 7,
    "bytes": b"orders",
    "None": None,
}


@pytest.mark.parametrize("url", ["memory://", "file://{folder}"])
@pytest.mark.parametrize("name", BAD_NAMES.values(), ids=BAD_NAMES.keys())
def test_a_bad_lock_name_is_refused(name: object, url: str, tmp_path: Path) -> None:
    """The error shows the name and what a name may be; no file appears."""
    folder = tmp_path / "locks"
    client = asynclock.connect(url.format(folder=folder))

    with pytest.raises(ConfigError, match="1 to 512 characters") as caught:
        client.lock(name)  # type: ignore[arg-type]

    assert caught.value.setting == "name"
    assert caught.value.value == name
    assert repr(name)[:8] in str(caught.value).replace("\\\\", "\\")
    assert not folder.exists()


def test_the_name_of_a_locks_object_is_refused_with_the_right_name() -> None:
    """``orders.json`` would be another lock, which no list could show; the error says ``orders``."""
    with pytest.raises(ConfigError, match="the lock's name is 'team/orders'"):
        asynclock.connect("memory://").lock("team/orders.json")


@pytest.mark.parametrize("name", ["a", "A.b_c-d=e", "year=2024/month=01/orders", "...", "a/..b", "x" * 512])
def test_a_good_lock_name_is_an_object_of_that_name(name: str) -> None:
    """``a/b`` is the object ``a/b.json``."""
    lock = asynclock.connect("memory://").lock(name)

    assert (lock.name, lock.key) == (name, f"{name}.json")


BAD_URLS = {
    "no scheme": ("orders", "must be like"),
    "empty": ("", "must be like"),
    "unknown scheme": ("ftp://host/locks", "unknown scheme"),
    "no slashes": ("memory:orders", "must be like"),
    "a space": ("memory://my locks", "must be like"),
    "a query": ("memory://x?timeout=3", "options by name"),
    "a fragment": ("memory://x#y", "options by name"),
    "a relative folder": ("file://locks/here", "file:///absolute/folder"),
    "no folder": ("file:///", "file:///absolute/folder"),
    "folder with dots": ("file:///data/../locks", "empty segment, '.' or '..'"),
    "folder with hidden dots": ("file:///data/%2e%2e/locks", "empty segment, '.' or '..'"),
    "a port": ("memory://x:1", "memory://NAME"),
    "None": (None, "must be like"),
    "a Path": (Path("/data"), "must be like"),
    "bytes": (b"memory://x", "must be like"),
    "brackets": ("memory://[x", "url="),
}


@pytest.mark.parametrize(("url", "remedy"), BAD_URLS.values(), ids=BAD_URLS.keys())
def test_a_bad_url_is_refused(url: object, remedy: str) -> None:
    """``connect`` raises at once, shows the URL and says how one looks."""
    with pytest.raises(ConfigError) as caught:
        asynclock.connect(url)  # type: ignore[arg-type]

    assert caught.value.setting == "url"
    assert remedy in str(caught.value)
    assert str(url)[:5] in str(caught.value)


def test_a_password_in_a_url_is_refused_and_not_shown() -> None:
    """A secret in a URL would end up in logs, so neither text nor fields repeat it."""
    with pytest.raises(ConfigError, match="password") as caught:
        asynclock.connect("s3://key:s3cret@bucket/locks")

    assert "s3cret" not in str(caught.value)
    assert "s3cret" not in repr(caught.value.__reduce__())


BUCKETS = {
    "s3": (
        ["abc", "my-bucket", "my.bucket.7", "0" * 63, "0.bucket", "shared-alias-s3alias", "zone--x-s3"],
        ["", ".", "..", "ab", "A", "Bucket", "my_bucket", "-bucket", "bucket-", ".bucket", "bucket.", "a..b",
         "0" * 64, "192.168.5.4", "b%2e%2e", "b\u00fccket", "bucket:9000", "$root"],
    ),
    "gs": (
        ["abc", "my_bucket", "my-bucket.example.com", "0" * 63, ".".join(["a" * 63] * 3)],
        ["", ".", "..", "ab", "Bucket", "_bucket", "bucket_", "a..b", "0" * 64, "192.168.5.4",
         ".".join(["a" * 60] * 4), "b%2e%2e", "bucket:9000"],
    ),
    "az": (
        ["abc", "my-box", "0" * 63, "$root", "$web"],
        ["", ".", "..", "ab", "Box", "my_box", "my.box", "-box", "box-", "my--box", "0" * 64, "$logs",
         "b%2e"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("scheme", "name"), [(scheme, name) for scheme, (_, bad) in BUCKETS.items() for name in bad]
)
def test_a_name_that_no_bucket_can_have_is_refused(scheme: str, name: str) -> None:
    """The provider's rules hold in every spelling, for Hudi's tables too; the error says which they are."""
    account = "@account.dfs.core.windows.net"
    urls = {
        "s3": [f"s3://{name}/x", f"s3a://{name}"],
        "gs": [f"gs://{name}/x"],
        "az": [f"az://{name}/x", f"abfss://{name}{account}/x"],
    }[scheme]
    options = {"account_url": "https://account.example"} if scheme == "az" else {}

    for url in urls:
        with pytest.raises(ConfigError):
            asynclock.connect(url, **options)
        if not url.startswith("az:"):
            with pytest.raises(ConfigError):
                hudi.table_lock(url)


@pytest.mark.parametrize(
    ("scheme", "name"), [(scheme, name) for scheme, (good, _) in BUCKETS.items() for name in good]
)
def test_a_name_that_a_bucket_can_have_is_taken(scheme: str, name: str) -> None:
    """Aliases of access points and directory buckets are buckets to a client."""
    options = {"account_url": "https://account.example"} if scheme == "az" else {}

    assert asynclock.connect(f"{scheme}://{name}/x", **options).url == f"{scheme}://{name}/x"
    base = f"abfss://{name}@account.dfs.core.windows.net/x" if scheme == "az" else f"{scheme}://{name}/x"
    assert hudi.table_lock(base).base_path == base


def test_the_rules_for_names_are_in_the_error() -> None:
    """One sentence says what a bucket may be called."""
    with pytest.raises(ConfigError, match=r"must be like s3://bucket/prefix; a bucket has 3 to 63"):
        asynclock.connect("s3://../x")


BAD_OPTIONS = {
    "unknown option": ({"regoin": "eu"}, "regoin", "there are: min_write_interval"),
    "wrong type": ({"min_write_interval": "1"}, "min_write_interval", "of type float"),
    "a bool for a number": ({"min_write_interval": True}, "min_write_interval", "of type float"),
    "negative interval": ({"min_write_interval": -1.0}, "min_write_interval", "0 to 60"),
    "NaN interval": ({"min_write_interval": float("nan")}, "min_write_interval", "0 to 60"),
    "renewal": ({"renewal": "process"}, "renewal", '"thread" or "loop"'),
    "settings": ({"settings": {"validity": 3}}, "settings", "LeaseSettings"),
    "empty holder": ({"holder": ""}, "holder", "1 to 256 printable"),
    "long holder": ({"holder": "x" * 257}, "holder", "1 to 256 printable"),
    "unprintable holder": ({"holder": "a\x1b"}, "holder", "1 to 256 printable"),
}


@pytest.mark.parametrize(("options", "setting", "remedy"), BAD_OPTIONS.values(), ids=BAD_OPTIONS.keys())
def test_a_bad_option_is_refused(options: dict[str, object], setting: str, remedy: str) -> None:
    """Each argument of ``connect`` is checked there, without I/O."""
    with pytest.raises(ConfigError) as caught:
        asynclock.connect("memory://", **options)  # type: ignore[arg-type]

    assert caught.value.setting == setting
    assert setting in str(caught.value)
    assert remedy in str(caught.value)


def test_validity_must_cover_skew_and_resolution_of_the_backend() -> None:
    """The check that needs the backend's clock is made by ``connect`` too."""

    class WholeSeconds:
        clock_resolution = 1.0
        min_write_interval = 0.0

    with pytest.raises(ConfigError, match="clock resolution") as caught:
        LockClient(
            url="x://y",
            backend=WholeSeconds(),  # type: ignore[arg-type]
            settings=LeaseSettings(validity=2.0),
        )

    assert caught.value.setting == "validity"


def test_the_default_holder_names_host_process_and_program(tmp_path: Path) -> None:
    """Without ``holder`` a reader of the bucket sees which program holds the lock."""
    holder = asynclock.connect(f"file://{tmp_path}")._core._objects.issuer.holder

    assert holder.startswith(f"{socket.gethostname()}:{os.getpid()}:")


@pytest.mark.parametrize("timeout", [-1, -0.001, float("nan"), "3"], ids=repr)
async def test_a_bad_timeout_is_refused(timeout: object) -> None:
    """A timeout is a number of seconds, 0 or more, or None."""
    async with asynclock.connect("memory://", renewal="loop") as client:
        with pytest.raises(ConfigError, match="0 or more") as caught:
            await client.lock("orders").acquire(timeout=timeout)  # type: ignore[arg-type]

        assert caught.value.setting == "timeout"
        assert await client.list() == []


@pytest.mark.parametrize(
    ("url", "sdk", "extra"),
    [
        ("s3://bucket/locks", "aiobotocore", "s3"),
        ("gs://bucket/locks", "gcloud", "gcs"),
        ("abfss://box@account.dfs.core.windows.net", "azure", "azure"),
    ],
)
def test_a_missing_package_names_its_extra(url: str, sdk: str, extra: str) -> None:
    """A scheme whose SDK is not installed says what to install."""
    program = f"import sys\nsys.modules[{sdk!r}] = None\nimport asynclock\nasynclock.connect({url!r})"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    scheme = url.partition(":")[0]
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"asynclock.errors.BackendNotInstalledError: {scheme}://"), done.stderr
    assert last.endswith(f"pip install 'asynclock[{extra}]' [AL-004]")


@pytest.mark.parametrize("thing", ["client", "lock", "lease", "sync client", "sync lock", "sync lease"])
def test_what_belongs_to_this_process_cannot_be_pickled(thing: str) -> None:
    """A pickled lease would pretend to be held elsewhere: TypeError, with the remedy."""
    with sync.connect("memory://") as client, client.lock("orders").hold() as lease:
        things = {
            "client": client,
            "lock": client.lock("orders"),
            "lease": lease,
            "sync client": client,
            "sync lock": client.lock("orders"),
            "sync lease": lease,
        }
        with pytest.raises(TypeError, match=r"cannot be pickled.*(other|another) process"):
            pickle.dumps(things[thing])
