"""The Spark that a spec runs on."""

from __future__ import annotations

import re
from dataclasses import field
from typing import Final

from asynclock._shared.words import refuse_credentials
from asynclock.spark.spec.checked import checked, run_all, wrong
from asynclock.spark.spec.environment import FromEnvironment, Settings, refuse_literal_setting, resolved

_MASTER: Final = re.compile(
    r"local(\[(\d+|\*)(,\s*\d+)?\])?|local-cluster\[\d+,\s*\d+,\s*\d+\]|spark://\S+|yarn|k8s://\S+"
)
_PACKAGE: Final = re.compile(r"[\w.-]+:[\w.-]+:[\w.-]+")


@checked
class SparkSpec:
    """How Spark is started if it does not run already and ``spark-submit`` does not start it.

    Attributes:
        master: Spark's master URL; None: ``local[*]``.
        conf: Settings of Spark by their full names.
        packages: Maven coordinates that Spark downloads, in addition to those of a splice table.
    """

    master: str | None = None
    conf: Settings = field(default_factory=dict, hash=False)
    packages: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        run_all(self._check_master, self._check_conf, self._check_packages)

    def _check_master(self) -> None:
        if self.master is not None:
            refuse_credentials("master", self.master)
            if not _MASTER.fullmatch(self.master):
                reason = "must be Spark's master: local[*], spark://host:7077, yarn or k8s://host:443"
                raise wrong("master", self.master, reason)

    def _check_conf(self) -> None:
        for name, value in self.conf.items():
            setting = f"conf.{name}"
            refuse_literal_setting(setting, value)
            if name == "spark.master":
                raise wrong(setting, value, "the master has a key of its own")
            if not name.startswith("spark."):
                prefixed = f"spark.hadoop.{name}" if name.startswith("fs.") else f"spark.{name}"
                reason = (
                    f"settings of Spark begin with 'spark.', those of Hadoop with 'spark.hadoop.': {prefixed}"
                )
                raise wrong(setting, "...", reason)
        resolved({f"conf.{name}": value for name, value in self.conf.items()})

    def _check_packages(self) -> None:
        for package in self.packages:
            if not _PACKAGE.fullmatch(package):
                reason = "must be Maven coordinates: group:artifact:version"
                raise wrong("packages", package, reason)

    def plain(self) -> dict[str, str]:
        """Return the settings with values in the spec, the packages among them."""
        plain = {name: value for name, value in self.conf.items() if isinstance(value, str)}
        if self.packages:
            given = plain.get("spark.jars.packages")
            plain["spark.jars.packages"] = ",".join([*filter(None, [given]), *self.packages])
        return plain

    def secret(self) -> dict[str, str]:
        """Return the settings with values in the environment.

        Raises:
            ConfigError: A variable is not set.
        """
        secrets = {name: value for name, value in self.conf.items() if isinstance(value, FromEnvironment)}
        return {name: str(value) for name, value in resolved(secrets).items()}
