"""moto's server, with one write to S3 at a time.

moto runs a thread for each request, and looks at the condition of a write before it writes: of two writes
over one version both may pass. S3 lets one pass
(https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html).
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from moto.s3.responses import S3Response
from moto.server import main

if TYPE_CHECKING:
    from moto.core.common_types import TYPE_RESPONSE

_WRITING = threading.Lock()
_put_object = S3Response.put_object


def put_object(self: S3Response) -> TYPE_RESPONSE:
    """Look at the condition and write, while no other request does."""
    with _WRITING:
        return _put_object(self)


if __name__ == "__main__":
    S3Response.put_object = put_object  # type: ignore[method-assign]
    main()
