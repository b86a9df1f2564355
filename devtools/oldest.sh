#!/usr/bin/env bash
# The oldest versions that pyproject.toml allows, in an environment of their own (.venv-oldest), and
# the library's central tests with them. The newest are what constraints.txt names.
set -euo pipefail
cd "$(dirname "$0")/.."
py=.venv-oldest/bin/python
[ -x "$py" ] || "${PYTHON:-python3}" -m venv .venv-oldest
.venv/bin/uv pip install -q --python "$py" --resolution lowest-direct -r pyproject.toml
.venv/bin/uv pip install -q --python "$py" pytest hypothesis "setuptools>=68" wheel
.venv/bin/uv pip install -q --python "$py" --no-deps --no-build-isolation -e .
"$py" -c 'import numpy, torch, torchvision; print("numpy", numpy.__version__, "torch", torch.__version__, "torchvision", torchvision.__version__)'
OMP_NUM_THREADS=1 "$py" -m pytest -q -p no:cacheprovider tests/methods/test_equations.py \
  tests/methods/test_every_method.py tests/methods/test_fedamp.py tests/methods/test_spfl.py \
  tests/methods/test_fedala.py tests/test_attention.py tests/test_partition.py tests/test_models.py \
  tests/test_training.py tests/test_run.py tests/test_metrics.py
