#!/bin/sh
# Install the library fluke into an environment of its own, so that `make bench` measures it too.
# Its many requirements stay out of the book's environment.
set -e
cd "$(dirname "$0")/.."
python3 -m venv .venv-fluke
UV_FIND_LINKS="${PIP_FIND_LINKS:-}" .venv/bin/uv pip install -q --python .venv-fluke/bin/python \
  fluke-fl==0.8.1 torch==2.13.0 torchvision==0.28.0 -e .
.venv-fluke/bin/python -c 'import fluke, pfl_lib; print("fluke is in .venv-fluke")'
