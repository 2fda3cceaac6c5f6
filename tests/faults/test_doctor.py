"""``probe`` and ``asynclock doctor`` name what is wrong with a store, also between two of its addresses."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys

import pytest

import asynclock
from asynclock._core.defects import Defect
from tests.servers.scripted import Quirk, ScriptedStore

DIALECTS = ["s3", "gcs", "azure"]
KNOWN = [
    (Quirk.CREATES_TWICE, Defect.CREATES_TWICE),
    (Quirk.REPLACES_ANY, Defect.REPLACES_ANY),
    (Quirk.DROPS_CONDITIONS, Defect.NO_CONDITIONS),
    (Quirk.INVERTED, Defect.INVERTED),
    (Quirk.TWO_STEPS, Defect.NOT_ATOMIC),
    (Quirk.DELETE_MARKER, Defect.DELETE_MARKER),
    (Quirk.REFUSES_SHOWN, Defect.REFUSES_SHOWN),
    (Quirk.NEVER_FOUND, Defect.STALE_READS),
    (Quirk.STALE, Defect.STALE_READS),
    (Quirk.CHANGES_BODIES, Defect.BODY_CHANGED),
    (Quirk.WRITES_REFUSED, Defect.WRITES_REFUSED),
    (Quirk.REPLACES_NOTHING, Defect.CREATES_BY_REPLACING),
    (Quirk.NO_IF_MATCH, Defect.UNSUPPORTED),
]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(("quirk", "defect"), KNOWN, ids=[quirk.name for quirk, _ in KNOWN])
async def test_every_known_defect_is_named(dialect: str, quirk: Quirk, defect: Defect) -> None:
    """The report names the one cause first, with a remedy, and nothing is left in the store."""
    async with ScriptedStore(dialect, quirk) as store:
        report = await asynclock.probe(store.url, **store.options)

    assert not report.safe
    assert report.defects[:1] == (defect,)
    assert defect.remedy


@pytest.mark.parametrize("dialect", ["s3", "azure"])
@pytest.mark.parametrize("quirk", [Quirk.WEAK, Quirk.COMPRESSED, Quirk.CHANGING], ids=str)
async def test_etags_that_are_changed_on_the_way_are_named(dialect: str, quirk: Quirk) -> None:
    """A proxy that compresses answers or makes ETags of its own is the reason."""
    async with ScriptedStore(dialect, quirk) as store:
        report = await asynclock.probe(store.url, **store.options)

    assert report.defects == (Defect.VERSION_CHANGED,)


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_good_store_has_no_defect(dialect: str) -> None:
    """By one address and by two, and each trial leaves the store as it was."""
    async with ScriptedStore(dialect, nodes=2) as store:
        report = await asynclock.probe(store.url, also=store.endpoints[1], **store.options)

        assert report.reasons == ()
        assert report.defects == ()
        assert "half of them by each address" in report.findings[-1].detail
        assert not store.objects


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("quirk", [Quirk.BY_ONE_NODE, Quirk.EACH_FOR_ITSELF], ids=lambda quirk: quirk.name)
async def test_a_condition_that_one_node_keeps_is_found_by_two_addresses(dialect: str, quirk: Quirk) -> None:
    """Each store looks good by its first address alone."""
    async with ScriptedStore(dialect, quirk, nodes=2) as store:
        alone = await asynclock.probe(store.url, **store.options)
        both = await asynclock.probe(store.url, also=store.endpoints[1], **store.options)

    assert alone.safe
    assert both.defects == (Defect.NODES_APART,)


async def test_a_store_that_takes_one_write_a_second_is_told_what_to_set() -> None:
    """The remedy is the option, and with it the store is safe."""
    async with ScriptedStore("s3", Quirk.ONE_A_SECOND) as store:
        hasty = await asynclock.probe(store.url, **store.options)
        paced = await asynclock.probe(store.url, min_write_interval=1.05, **store.options)

    assert hasty.defects == (Defect.ONE_WRITE_A_SECOND,)
    assert "min_write_interval=1" in hasty.defects[0].remedy
    assert paced.reasons == ()


async def test_two_stores_are_no_two_addresses_of_one() -> None:
    """A typing error in the second address is reported, not called safe."""
    async with ScriptedStore("s3") as one, ScriptedStore("s3") as two:
        report = await asynclock.probe(one.url, also=two.endpoints[0], **one.options)

    assert report.defects == (Defect.NODES_APART,)
    assert any("is it the same store?" in reason for reason in report.reasons)


async def test_two_urls_of_one_folder_are_raced() -> None:
    """The second address may be a URL of locks too, as of another mount of one disk."""
    assert not (await asynclock.probe("memory://one", also="memory://two")).safe
    assert (await asynclock.probe("memory://one", also="memory://one")).safe


async def test_the_command_prints_the_name_and_the_remedy() -> None:
    """And ends with 1; ``--also`` races, ``--json`` has the name in the finding."""
    async with ScriptedStore("s3", Quirk.BY_ONE_NODE, nodes=2) as store:
        words = [f"-o{key}={value}" for key, value in store.options.items() if key == "endpoint_url"]

        def doctor(*more: str) -> subprocess.CompletedProcess[str]:
            keys = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_REGION": "us-east-1"}
            return subprocess.run(
                [sys.executable, "-m", "asynclock", "doctor", store.url, *words, *more],
                env=os.environ | keys,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )

        alone = await asyncio.to_thread(doctor)
        both = await asyncio.to_thread(doctor, "--also", store.endpoints[1])
        as_json = await asyncio.to_thread(doctor, "--also", store.endpoints[1], "--json")

    assert (alone.returncode, both.returncode) == (0, 1), alone.stdout + alone.stderr + both.stderr
    assert f"{Defect.NODES_APART}: {Defect.NODES_APART.remedy}" in both.stdout
    assert Defect.NODES_APART in {found["defect"] for found in json.loads(as_json.stdout)["findings"]}
