"""The driver for ``spark-submit``, whose file must end in ``.py``: the ``asynclock`` command as it is.

``spark-submit --master … --jars … examples/submit.py pipeline run SPEC``
"""

from asynclock.cli import main

main()
