"""The spec of a table: its model, its TOML and its keys."""
