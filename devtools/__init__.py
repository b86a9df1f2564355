"""The project's own tools, each run as `python -m devtools.NAME`."""
