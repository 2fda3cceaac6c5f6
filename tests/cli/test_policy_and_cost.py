"""``policy`` and ``cost``; ``tests/contract/test_s3_policies.py`` tries the policy with a key."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from asynclock._cli.cost import PRICES
from tests.cli.command import asynclock

PAGE = Path(__file__).parents[2].joinpath("docs/backends/index.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("url", "resource", "prefix"),
    [
        ("s3://bucket/team/locks", "arn:aws:s3:::bucket/team/locks/*", "team/locks/*"),
        ("s3a://bucket/team/locks/", "arn:aws:s3:::bucket/team/locks/*", "team/locks/*"),
        ("s3://bucket", "arn:aws:s3:::bucket/*", "*"),
        ("s3://bucket/PREFIX/BUCKET", "arn:aws:s3:::bucket/PREFIX/BUCKET/*", "PREFIX/BUCKET/*"),
        ("s3://bucket/a*b$c", "arn:aws:s3:::bucket/a${*}b${$}c/*", "a${*}b${$}c/*"),
    ],
)
def test_a_policy_for_s3_has_the_names_of_the_url(url: str, resource: str, prefix: str) -> None:
    """The standard output is the policy and nothing else, for the objects under the URL and no others."""
    ran = asynclock("policy", url)

    objects, bucket = json.loads(ran.stdout)["Statement"]
    assert (ran.returncode, ran.stderr) == (0, "")
    assert (objects["Action"], objects["Resource"]) == (["s3:GetObject", "s3:PutObject"], [resource])
    assert (bucket["Action"], bucket["Resource"]) == (["s3:ListBucket"], ["arn:aws:s3:::bucket"])
    assert bucket["Condition"] == {"StringLike": {"s3:prefix": [prefix]}}


def test_who_only_reads_may_not_write_and_who_prunes_may_delete() -> None:
    """--read-only takes the right to write away, --prune adds that to delete; both at once are refused."""
    actions = [
        json.loads(asynclock("policy", "s3://bucket/locks", word).stdout)["Statement"][0]["Action"]
        for word in ("--read-only", "--prune")
    ]

    assert actions == [["s3:GetObject"], ["s3:GetObject", "s3:PutObject", "s3:DeleteObject"]]
    assert asynclock("policy", "s3://bucket/locks", "--read-only", "--prune").returncode == 2
    assert asynclock("policy", "gs://bucket/locks", "--prune").returncode == 2


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("gs://bucket/locks", "storage.objects.create"),
        ("az://container/locks", "Storage Blob Data Contributor"),
        ("abfss://container@account.dfs.core.windows.net/locks", "/containers/container\n"),
        ("file:///var/locks", "write"),
        ("memory://x", "none"),
    ],
)
def test_each_store_has_its_permissions(url: str, says: str) -> None:
    """Each scheme prints what its user needs."""
    ran = asynclock("policy", url)

    assert ran.returncode == 0
    assert says in ran.stdout


@pytest.mark.parametrize("command", ["policy", "cost"])
@pytest.mark.parametrize("url", ["nonsense://x", "s3:/bucket", "s3://key:secret@bucket"])
def test_a_wrong_url_is_refused(command: str, url: str) -> None:
    """2 and a sentence without a secret."""
    ran = asynclock(command, url)

    assert (ran.returncode, ran.stdout) == (2, "")
    assert "secret" not in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize("scheme", PRICES)
def test_every_store_has_a_price(scheme: str) -> None:
    """A lock that is held all day is a write for each renewal, at the price of the provider."""
    ran = asynclock("cost", f"{scheme}://place/locks", "--json")

    cost = json.loads(ran.stdout)
    assert (cost["writes"], cost["reads"]) == (2880, 0)
    assert cost["dollars"] == pytest.approx(2880 * cost["dollars_per_million_writes"] / 1e6)
    assert cost["source"]


def test_the_figures_are_those_of_the_documentation() -> None:
    """Requests, prices and dollars are the ones on the page, which a test counts at a store."""
    cost = json.loads(asynclock("cost", "s3://bucket/locks", "--waiting", "1", "--json").stdout)

    row = re.search(r"([\d,]+) writes, \$[\d.]+; and ([\d,]+) reads, \$([\d.]+) in all", PAGE)
    prices = re.search(r"\$([\d.]+) per million\s+writes and \$([\d.]+) per million\s+reads", PAGE)
    assert row is not None
    assert prices is not None
    assert cost["writes"] == int(row[1].replace(",", ""))
    assert cost["reads"] == pytest.approx(int(row[2].replace(",", "")), rel=0.005)
    assert cost["dollars"] == pytest.approx(float(row[3]), abs=0.005)
    assert [cost["dollars_per_million_writes"], cost["dollars_per_million_reads"]] == [
        float(prices[1]),
        float(prices[2]),
    ]


def test_more_locks_shorter_leases_and_slower_looks_count() -> None:
    """Writes follow the locks, the renewals and the acquisitions; reads follow the poll interval."""
    words = (
        "--locks",
        "10",
        "--validity",
        "600",
        "--acquired",
        "5",
        "--waiting",
        "2",
        "--poll-interval",
        "5",
    )
    cost = json.loads(asynclock("cost", "gs://bucket/locks", *words, "--json").stdout)
    text = asynclock("cost", "gs://bucket/locks", *words).stdout

    assert cost["writes"] == 10 * 1440 + 2 * 5
    assert cost["reads"] == pytest.approx(2 * 22_900, rel=0.01)
    assert "10 locks held all day, renewed every 60 s; " in text
    assert "a day, paid to Google Cloud Storage:" in text
    assert f"${cost['dollars']:.3f}" in text
    assert cost["source"] in text


@pytest.mark.parametrize("word", ["--locks=-1", "--waiting=nan", "--validity=0", "--locks=inf"])
def test_wrong_numbers_are_refused(word: str) -> None:
    """2 and a sentence."""
    ran = asynclock("cost", "s3://bucket", word)

    assert (ran.returncode, ran.stdout) == (2, "")
    assert "Traceback" not in ran.stderr
