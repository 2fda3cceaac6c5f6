"""What our two distributions share: the internals of the lock that the pipeline uses.

The pipeline, ``asynclock.spark``, imports public names of ``asynclock`` and the names of these modules. An
import contract allows no others. Each name here is one more that a change of the lock can break in the
pipeline. None is for users.
"""
