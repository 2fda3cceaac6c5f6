"""Every option that Hudi gets, composed of six layers.

- *place*: the place of the table decides the lock of a commit and the clocks;
- *table*: type, key, partitions, index and buckets, fixed at its creation;
- *merge*: which of two records of a key wins;
- *concurrency*: what writers that run at the same time do about each other;
- *services*: the work that a write leaves to compaction, cleaning and archiving, and their times;
- *user*: options of the spec's ``[hudi]``, which refuses those of the other layers.

A layer sets keys that no other layer sets, and gives the reason for each value. Writers, readers and services
take their options from here, and so does ``explain``, which prints them.
"""

from asynclock.spark.hudi.options.compose import call_argument as call_argument
from asynclock.spark.hudi.options.compose import cleaning_options as cleaning_options
from asynclock.spark.hudi.options.compose import clustering_options as clustering_options
from asynclock.spark.hudi.options.compose import compaction_options as compaction_options
from asynclock.spark.hudi.options.compose import compose as compose
from asynclock.spark.hudi.options.compose import read_options as read_options
from asynclock.spark.hudi.options.compose import sql_options as sql_options
from asynclock.spark.hudi.options.compose import stored_properties as stored_properties
from asynclock.spark.hudi.options.compose import sync_options as sync_options
from asynclock.spark.hudi.options.compose import write_options as write_options
from asynclock.spark.hudi.options.concurrency import SILENCE_MS as SILENCE_MS
from asynclock.spark.hudi.options.merge import MERGER_CLASS as MERGER_CLASS
from asynclock.spark.hudi.options.merge import MERGER_STRATEGY_ID as MERGER_STRATEGY_ID
from asynclock.spark.hudi.options.option import LAYERS as LAYERS
from asynclock.spark.hudi.options.option import USES as USES
from asynclock.spark.hudi.options.option import Layer as Layer
from asynclock.spark.hudi.options.option import Option as Option
from asynclock.spark.hudi.options.option import QueryType as QueryType
from asynclock.spark.hudi.options.option import Use as Use
from asynclock.spark.hudi.options.place_layer import FILE_LOCK_PROVIDER as FILE_LOCK_PROVIDER
from asynclock.spark.hudi.options.place_layer import lock_provider as lock_provider
