"""Credentials that no waiting brings are told at once, in a sentence that has no secret."""

from __future__ import annotations

import asyncio
import json
import logging
import stat
from typing import TYPE_CHECKING, Any

import gcloud.aio.auth.token
import pytest
from azure.core.exceptions import ClientAuthenticationError

import asynclock
import asynclock.backends._s3
from asynclock.backends import open_backend
from asynclock.errors import AccessDeniedError, BackendUnavailableError
from tests.faults.scripted import options, serving

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.faults.credentials import Machine

CANARY = "CANARY-dont-show-me"


async def _denied(url: str, **others: object) -> AccessDeniedError:
    """Return the error of an acquisition without a timeout, which comes at once; nothing was written."""
    async with asynclock.connect(url, renewal="loop", **others) as client:
        with pytest.raises(AccessDeniedError) as caught:
            async with asyncio.timeout(30):
                await client.lock("a").acquire()
    assert caught.value.written == "no"
    assert CANARY not in f"{caught.value} {caught.value!r}"
    return caught.value


def _process(machine: Machine, body: str | None) -> None:
    """Let a profile's credentials come from a shell script; None: from one that is not there."""
    path = machine.home / "process"
    if body is not None:
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    machine.write("config", f"[profile locker]\ncredential_process = {path}\nregion = us-east-1\n")
    machine.set(AWS_PROFILE="locker", AWS_EC2_METADATA_DISABLED="true")


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (None, "process cannot be run or read"),
        (f"echo token={CANARY} >&2; exit 3", "credential_process ended with an error"),
        (f"echo Please log in at https://sso.example.com {CANARY}", "credential_process printed no JSON"),
        (f"echo '[\"{CANARY}\"]'", "credential_process printed no JSON object"),
        ("true", "credential_process printed no JSON"),
        (f'echo \'{{"Version": 1, "Secret": "{CANARY}"}}\'', "credential_process"),
    ],
    ids=["missing", "fails", "no JSON", "a list", "nothing", "half of it"],
)
async def test_a_credential_process_without_credentials_is_told(
    machine: Machine, body: str | None, says: str
) -> None:
    """The error names the setting, and does not repeat what the process printed."""
    _process(machine, body)

    error = await _denied("s3://locks", endpoint_url="https://127.0.0.1:9")

    assert says in str(error)
    assert "credential_process" in str(error)


@pytest.mark.parametrize(
    ("account", "says"),
    [
        ({"type": "gdch_service_account", "private_key": CANARY}, "'gdch_service_account' is not a valid"),
        ({"type": "service_account", "client_email": "a@b"}, "private_key"),
        ({"type": "service_account", "client_email": "a@b", "private_key": CANARY}, "private key"),
        ({"installed": {"client_secret": CANARY}}, "type"),
        (
            {
                "type": "external_account",
                "audience": "a",
                "subject_token_type": "jwt",
                "token_url": "https://127.0.0.1:9",
                "credential_source": {"environment_id": "aws1"},
            },
            "aws credential_source is not supported",
        ),
    ],
    ids=["another kind", "no key", "a broken key", "an app's secret", "another source"],
)
async def test_credentials_that_the_sdk_cannot_use_are_told(
    machine: Machine, account: dict[str, Any], says: str
) -> None:
    """The sentence of Google's SDK is passed on."""
    machine.set(GOOGLE_APPLICATION_CREDENTIALS=machine.write("account.json", json.dumps(account)))

    error = await _denied("gs://locks", endpoint_url="https://127.0.0.1:9")

    assert says in str(error)
    assert "GOOGLE_APPLICATION_CREDENTIALS" in str(error)


async def test_no_credentials_of_google_at_all_is_told(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Elsewhere than on a machine of Google, nobody answers for its metadata service."""
    for name in ("GOOGLE_APPLICATION_CREDENTIALS", "CLOUDSDK_CONFIG", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("asynclock.backends._gcs_token._METADATA", "no-such-host.invalid")
    machine.patch(gcloud.aio.auth.token, "GCE_ENDPOINT_TOKEN", "http://no-such-host.invalid/token")

    error = await _denied("gs://locks", endpoint_url="https://127.0.0.1:9")

    assert "none were found" in str(error)


@pytest.mark.parametrize(("status", "passes"), [(400, False), (401, False), (429, True), (503, True)])
async def test_a_token_service_that_refuses_is_told(machine: Machine, status: int, passes: bool) -> None:  # noqa: FBT001
    """A refusal does not pass; a service that is overloaded may come back."""
    async with serving() as script:
        script.say(status, "Content-Type: application/json\r\n", f'{{"error": "{CANARY}"}}'.encode())
        account = {"type": "authorized_user", "client_id": "c", "client_secret": "s", "refresh_token": "r"}
        account["token_uri"] = f"http://127.0.0.1:{script.port}/token"
        machine.set(GOOGLE_APPLICATION_CREDENTIALS=machine.write("account.json", json.dumps(account)))
        backend = open_backend("gs://locks", endpoint_url="https://127.0.0.1:9")
        with pytest.raises(BackendUnavailableError if passes else AccessDeniedError) as caught:
            await backend.put_if_absent("a.json", b"{}")
        await backend.aclose()

    assert f"the service that hands them out answered {status}" in str(caught.value)
    assert caught.value.written == "no"
    assert CANARY not in str(caught.value)
    assert len(script.seen) == 1


async def test_a_credential_of_azure_that_is_refused_is_told() -> None:
    """Of what Entra says only its number is repeated."""

    class Refused:
        async def get_token(self, *_: str, **__: object) -> object:
            raise ClientAuthenticationError(f"AADSTS7000215: Invalid client secret {CANARY}")

    error = await _denied("az://locks", account_url="https://127.0.0.1:9/a", credential=Refused())

    assert "AADSTS7000215" in str(error)


async def test_a_slow_machine_is_no_missing_credential(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Calls whose time is up while the SDK is loaded warn of nothing, and the next ones find it loaded."""
    slowly: Callable[..., Any] = asynclock.backends._s3.open_client
    opened = 0

    async def open_client(**given: Any) -> object:  # noqa: ANN401  passed on
        nonlocal opened
        opened += 1
        await asyncio.sleep(1.0)  # a busy machine
        return await slowly(**given)

    monkeypatch.setattr(asynclock.backends._s3, "open_client", open_client)
    async with serving() as script:
        script.say(404)
        backend = open_backend("s3://locks", **options("s3", f"http://127.0.0.1:{script.port}"))
        for _ in range(3):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await backend.get("a.json")
        await backend.get("a.json")
        await backend.aclose()

    assert opened == 1
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
