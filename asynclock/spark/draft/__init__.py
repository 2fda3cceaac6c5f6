"""A spec drafted from the first files of its streams; Spark is not needed.

The second reader reads the files, so a type is chosen only if that strict reader accepts the values.
"""
