"""Values of a spec that are in the environment, and the refusal of secrets that are in the spec."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn

from pydantic import BeforeValidator

from asynclock._shared.words import HIDDEN, is_secret, refuse_credentials
from asynclock.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Names of Spark, Hadoop and Kafka settings, of environment variables and of JVM properties.
_SECRET_NAME: Final = re.compile(
    r"secret|passw|passphrase|token|credential|connection.?string|user.?info|signature"
    r"|key(?:[._-]?file)?[._-]?(?:contents?|data|json|text|value)$"
    r"|(?:account|customer|encryption|private|session|shared|shared[._-]?access|api)[._-]?key(?![._-]?name)"
    r"|(?:^|[._-])(?:sas|sig|pwd|pass|pin|jwt|pat|bearer)(?:[._-]|$)",
    re.IGNORECASE,
)
_KEY: Final = re.compile(r"key(?:[._-]?\d+)?(?:[._-](?:pem|der|base64))?$", re.IGNORECASE)
"""Names that end in "key": ``ssl.keystore.key``, ``DB_KEY``, ``dbkey``, ``KEY_2``, ``tls.key.pem``."""
_OTHER_KEY: Final = re.compile(
    r"(?:access|public|record|partition|primary|foreign|sort|dist|cluster|group|join|row|message|routing|label)"
    r"[._-]?key$",
    re.IGNORECASE,
)
"""Names of identifiers, which are not secret by themselves."""
# Azure's names end in the name of an account, which may contain any of the words below.
_AZURE_SECRET: Final = re.compile(
    r"fs\.azure\.(?:account\.?key(?:\.|$)|sas\.(?!token\.provider)"
    r"|account\.oauth2\.(?:client\.secret|user\.password|refresh\.token)(?:\.|$))",
    re.IGNORECASE,
)
# Settings about secrets that hold no secret: a class, a file, a switch, a number, a reference.
_ABOUT_SECRETS: Final = re.compile(
    r"provider|secretKeyRef|kubernetes\.(?:driver|executor)\.secrets\."
    r"|(?:path|files?|class|impl|enabled|type|endpoint|regex|length|interval|[._-](?:id|url|uri|name))$",
    re.IGNORECASE,
)
_ASSIGNED: Final = re.compile(r"""([\w.-]{1,128}+)(?:\s*=|["']?\s*:(?!//))\s*["']?([^\s"',;&]+)""")
"""``-Dname=value``, ``name="value"``, ``name: value`` and JSON's ``"name": "value"``."""
_FOLLOWED: Final = re.compile(r"(?:^|\s)--?([\w.-]{1,128}+)\s+([^\s-]\S*)")
"""``--name value``."""
_HEADER: Final = re.compile(r"authorization[\"']?\s*[:=]\s*\S|\bbearer\s+[\w.~+/-]{16}", re.IGNORECASE)
_PRIVATE_KEY: Final = re.compile(r"-----BEGIN [A-Z0-9 ]{0,32}PRIVATE KEY")
_LOGIN: Final = re.compile(r"://[^\s/@:]*:[^\s/@]+@")
_SWITCH: Final = re.compile(r"true|false", re.IGNORECASE)
_PLAIN: Final = re.compile(r"true|false|\d+", re.IGNORECASE)
_HOW: Final = 'is a secret, which a spec must not hold: set an environment variable, write { env = "NAME" }'


@dataclass(frozen=True, slots=True)
class FromEnvironment:
    """A value in an environment variable; it is read at each use and never kept.

    Attributes:
        variable: Name of the variable.
    """

    variable: str

    def __post_init__(self) -> None:
        if not _VARIABLE.fullmatch(self.variable):
            # Not shown: it may be the secret itself.
            reason = "env must name an environment variable: letters, digits and _"
            raise ConfigError(setting="", value=HIDDEN, reason=reason)

    def value(self) -> str:
        """Return the present value of the variable.

        Raises:
            ConfigError: The variable is not set, or empty.
        """
        found = os.environ.get(self.variable)
        if not found:
            reason = f"the environment variable {self.variable} is not set, or empty; set it and start again"
            raise ConfigError(setting="", value=HIDDEN, reason=reason)
        return found


def from_environment(setting: str, value: object) -> object:
    """Return a setting from TOML: ``{ env = "NAME" }`` as ``FromEnvironment``, any other value unchanged.

    Raises:
        ConfigError: The name is not the name of a variable.
    """
    if isinstance(value, dict) and value.keys() == {"env"} and isinstance(value["env"], str):
        try:
            return FromEnvironment(value["env"])
        except ConfigError as error:
            raise ConfigError(setting=setting, value=HIDDEN, reason=error.reason) from None
    return value


def flat_settings(values: object) -> object:
    """Return the settings of a table of TOML by their full names; any other value stays unchanged.

    Without quotes, TOML turns each part of a name into a table. Numbers and switches become text.

    Raises:
        ConfigError: The value of a setting is a list, a date or a time.
    """
    return dict(_flat("", values)) if isinstance(values, dict) else values


def _flat(prefix: str, values: Mapping[str, object]) -> Iterator[tuple[str, str | FromEnvironment]]:
    for name, given in values.items():
        full = f"{prefix}{name}"
        value = from_environment(full, given)
        if isinstance(value, dict):
            yield from _flat(f"{full}.", value)
        elif isinstance(value, bool):
            yield full, str(value).lower()
        elif isinstance(value, str | int | float | FromEnvironment):
            yield full, value if isinstance(value, FromEnvironment) else str(value)
        else:
            raise ConfigError(setting=full, value=HIDDEN, reason="expected a string or a number")


Settings = Annotated[
    Mapping[str, str | FromEnvironment], BeforeValidator(flat_settings, json_schema_input_type=dict[str, Any])
]
"""Settings of Spark or Kafka, by their full names."""


def resolved(values: Mapping[str, object]) -> dict[str, object]:
    """Return the values, with variables replaced by their values in the environment.

    Raises:
        ConfigError: A variable is not set; the setting is the name of the value.
    """
    return {name: _resolve(name, value) for name, value in values.items()}


def _resolve(name: str, value: object) -> object:
    if not isinstance(value, FromEnvironment):
        return value
    try:
        return value.value()
    except ConfigError as error:
        raise ConfigError(setting=name, value=HIDDEN, reason=error.reason) from None


def refuse_literal_option(name: str, value: object) -> None:
    """Refuse a secret option of a lock's store whose value is in the spec.

    Raises:
        ConfigError: It does; the value is not shown.
    """
    if is_secret(name) and not isinstance(value, FromEnvironment):
        _refuse(name)


def refuse_literal_setting(name: str, value: object) -> None:
    """Refuse a secret setting of Spark or Hadoop whose value is in the spec, alone or in other text.

    Raises:
        ConfigError: It does; the value is not shown.
    """
    if isinstance(value, FromEnvironment):
        return
    text = str(value)
    if (_is_secret_name(name) and not _SWITCH.fullmatch(text)) or _holds_secret(text):
        _refuse(name)
    refuse_credentials(name, text)


def _is_secret_name(name: str) -> bool:
    if _AZURE_SECRET.search(name):
        return True
    return _names_key(name) or (_SECRET_NAME.search(name) is not None and not _ABOUT_SECRETS.search(name))


def _names_key(name: str) -> bool:
    return _KEY.search(name) is not None and not _OTHER_KEY.search(name)


def _holds_secret(text: str) -> bool:
    """Return whether a text contains a secret next to its name, a private key, or a URL with a password."""
    if any(pattern.search(text) for pattern in (_PRIVATE_KEY, _LOGIN, _HEADER)):
        return True
    # ``storeKey=true`` of a JAAS configuration is a switch.
    return any(
        _is_secret_name(name) and not (_names_key(name) and _PLAIN.fullmatch(value))
        for name, value in (*_ASSIGNED.findall(text), *_FOLLOWED.findall(text))
    )


def _refuse(name: str) -> NoReturn:
    raise ConfigError(setting=name, value=HIDDEN, reason=_HOW)
