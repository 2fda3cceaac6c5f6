"""Values of a spec that stand in the environment, and the refusal of secrets that stand in the spec."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn

from asynclock._secrets import HIDDEN, is_secret
from asynclock.backends._url import refuse_credentials
from asynclock.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Names of Spark and Hadoop settings: fs.s3a.secret.key, fs.azure.account.key.HOST, spark.ssl.keyPassword.
_SECRET_SETTING: Final = re.compile(
    r"secret|passw|passphrase|token|credential|connection.?string"
    r"|(?:account|customer|encryption|private|session|shared)[._-]?key|(?:^|[._-])sas(?:[._-]|$)",
    re.IGNORECASE,
)
# Settings about secrets that hold none: a class, a file, a switch, a number.
_ABOUT_SECRETS: Final = re.compile(
    r"provider|(?:path|files?|class|impl|enabled|type|endpoint|regex|length|interval|[._-](?:id|url|uri|name))$",
    re.IGNORECASE,
)
_SECRET_IN_VALUE: Final = re.compile(
    r"(?:secret|passw|token|account.?key)[^\s=]{0,64}=\s*[^\s=]", re.IGNORECASE
)
_HOW: Final = 'is a secret, which a spec must not hold: set an environment variable, write { env = "NAME" }'


@dataclass(frozen=True, slots=True)
class FromEnvironment:
    """A value that stands in an environment variable; it is read at each use and never kept.

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
        """Return what the variable holds now.

        Raises:
            ConfigError: The variable is not set, or empty.
        """
        found = os.environ.get(self.variable)
        if not found:
            reason = f"the environment variable {self.variable} is not set, or empty; set it and start again"
            raise ConfigError(setting="", value=HIDDEN, reason=reason)
        return found


def from_environment(setting: str, value: object) -> object:
    """Return what TOML gave for a setting: ``{ env = "NAME" }`` as ``FromEnvironment``, all else as it is.

    Raises:
        ConfigError: The name is none of a variable.
    """
    if isinstance(value, dict) and value.keys() == {"env"} and isinstance(value["env"], str):
        try:
            return FromEnvironment(value["env"])
        except ConfigError as error:
            raise ConfigError(setting=setting, value=HIDDEN, reason=error.reason) from None
    return value


def resolved(values: Mapping[str, object]) -> dict[str, object]:
    """Return the values with what stands in the environment.

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
    """Refuse a secret option of a lock's store whose value stands in the spec.

    Raises:
        ConfigError: It does; the value is not shown.
    """
    if is_secret(name) and not isinstance(value, FromEnvironment):
        _refuse(name)


def refuse_literal_setting(name: str, value: object) -> None:
    """Refuse a secret setting of Spark or Hadoop whose value stands in the spec, alone or in other text.

    Raises:
        ConfigError: It does; the value is not shown.
    """
    if isinstance(value, FromEnvironment):
        return
    text = str(value)
    by_name = _SECRET_SETTING.search(name) and not _ABOUT_SECRETS.search(name)
    if by_name or _SECRET_IN_VALUE.search(text):
        _refuse(name)
    refuse_credentials(name, text)


def _refuse(name: str) -> NoReturn:
    raise ConfigError(setting=name, value=HIDDEN, reason=_HOW)
