"""How many requests to an S3 store a write costs, by the kind of its markers."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from tests.hudi.harness import compile_harness, lock_client_jar, s3a_jars
from tests.laboratory.mechanisms.child import Child
from tests.laboratory.mechanisms.plain_flights import table
from tests.laboratory.servers import BUCKET, running

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import pandas as pd

    from tests.laboratory.servers import Server


def requests(folder: Path, events: pd.DataFrame, settings: Sequence[str]) -> list[int]:
    """Write the events over those of a table in S3; return the requests for each settings of the table.

    Args:
        folder: It is made.
        events: What is written, to all files of the table.
        settings: Lines of ``[table]``, for each of the tables.
    """
    classes = folder / "classes"
    classes.mkdir(parents=True)
    rows = folder / "events.csv"
    events.to_csv(rows, index=False)
    specs = [_spec(folder / str(number), lines) for number, lines in enumerate(settings)]
    lock_client = lock_client_jar(compile_harness(classes), folder)
    with running("s3", own=True) as server, Child("counted_driver", specs[0], rows) as driver:
        driver.tell(json.dumps(settings_of(server, lock_client)))
        counts = []
        for spec in specs:
            driver.tell(str(spec))
            counts.append(int(driver.answer()))
    return counts


def _spec(folder: Path, settings: str) -> Path:
    path = table(folder, settings).path
    text = path.read_text().replace('path = "table"', f'path = "s3a://{BUCKET}/{folder.name}/table"')
    path.write_text(text)
    return path


def settings_of(server: Server, lock_client: str, *, endpoint: str = "") -> Mapping[str, Mapping[str, str]]:
    """Return the environment and the settings of Spark of a driver whose tables are in an S3 server.

    Args:
        server: The server.
        lock_client: Jar of the client of Hudi's commit lock.
        endpoint: Address at which the driver reaches the server; default: the server's own.
    """
    endpoint = endpoint or server.endpoint
    user, password = server.options["access_key_id"], server.options["secret_access_key"]
    return {
        "environment": {  # of Hudi's commit lock
            "AWS_ENDPOINT_URL_S3": endpoint,
            "AWS_REGION": server.options["region"],
            "AWS_ACCESS_KEY_ID": user,
            "AWS_SECRET_ACCESS_KEY": password,
        },
        "spark": {
            "spark.sql.shuffle.partitions": "2",
            "spark.jars": lock_client,  # beside Hudi's, on whose classes it builds
            "spark.driver.extraClassPath": os.pathsep.join(s3a_jars()),
            "spark.hadoop.fs.s3a.endpoint": endpoint,
            "spark.hadoop.fs.s3a.path.style.access": "true",
            "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
            "spark.hadoop.fs.s3a.access.key": user,
            "spark.hadoop.fs.s3a.secret.key": password,
        },
    }
