#!/usr/bin/env bash
# Make .venv and put everything into it: the book's tools, the tests' tools, and pfl_lib itself.
# uv does it in seconds; where uv is not to be had, pip does the same in minutes.
# PFL_HASHES=1 takes only the very archives whose hashes are in requirements.lock.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
command -v "$python" >/dev/null || { echo "There is no '$python'. Install Python 3.10 or newer."; exit 1; }
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || {
  echo "Python 3.10 or newer is needed, but '$python' is $("$python" -V 2>&1)."
  echo "Name another one, for example:  make PYTHON=python3.12 book"
  exit 1
}
[ -x .venv/bin/python ] || "$python" -m venv .venv || {
  echo "'$python -m venv' failed. On Debian and Ubuntu:  apt-get install python3-venv"
  exit 1
}
py=.venv/bin/python

# The exact versions are for Python 3.11 and newer; 3.10 takes the newest that fit.
pins=""
if "$py" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then pins="-c constraints.txt"; fi

export UV_FIND_LINKS="${PIP_FIND_LINKS:-}"
[ "${PFL_HASHES:-}" = 1 ] || [ -x .venv/bin/uv ] || "$py" -m pip install -q uv || true
with_uv() { # shellcheck disable=SC2086
  [ -x .venv/bin/uv ] &&
    .venv/bin/uv pip install -q --compile-bytecode --python "$py" -r requirements.txt $pins
}
with_pip() { # shellcheck disable=SC2086
  "$py" -m pip install -q -r requirements.txt $pins
}
with_hashes() { # the locks are complete, so nothing else is asked for
  locked() { "$py" -m pip install -q --no-deps --require-hashes -r "$1"; }
  locked requirements.lock
  locked requirements-cpu.lock 2>/dev/null || locked requirements-cuda.lock
  "$py" -m pip install -q --no-deps --no-build-isolation -e .
  "$py" -m pip check
}
# Byte code is written now, once: where PYTHONDONTWRITEBYTECODE is set it is never written later, and
# every kernel would take four seconds longer to start. (pip compiles what it installs by itself.)
if [ "${PFL_HASHES:-}" = 1 ]; then
  [ -n "$pins" ] || { echo "PFL_HASHES=1 needs Python 3.11.5 or newer."; exit 1; }
  with_hashes
else
  with_uv || { echo "uv could not do it; trying pip, which takes longer."; with_pip; }
fi
"$py" -m compileall -q pfl_lib devtools
touch .venv/.installed
