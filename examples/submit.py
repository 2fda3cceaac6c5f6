"""The driver for ``spark-submit``, whose file must end in ``.py``: the ``asynclock`` command as it is.

``spark-submit --master … --jars … examples/submit.py pipeline run SPEC``
"""

import runpy

runpy.run_module("asynclock", run_name="__main__", alter_sys=True)
