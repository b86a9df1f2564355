#!/bin/sh
# Install a peer of the race into an environment of its own, .venv-NAME, from the package index.
# Its requirements stay out of the book's environment.  Without a name: what there is.
# PYTHON=/path/to/python chooses the interpreter (BlazeFL needs 3.12 or newer).
set -u
cd "$(dirname "$0")/../.."
name=${1:-}
TORCH="torch==2.13.0 numpy"
least=3.10
case $name in
  # checkouts that you name when you race (PFLLIB=..., FLBENCH=...): here only what they import
  pfllib) packages="$TORCH h5py scikit-learn matplotlib" ;;
  flbench) packages="$TORCH torchvision==0.28.0 hydra-core ray rich scikit-learn scipy pandas
    matplotlib pynvml pillow" ;;
  fluke) packages="$TORCH fluke-fl==0.8.1 torchvision==0.28.0" ;;
  blazefl) packages="$TORCH blazefl[contrib,reproducibility]==2.0.3"; least=3.12 ;;
  pfl-research) packages="$TORCH pfl==0.6.0" ;;
  # its last release calls jax.tree_map, which newer versions of jax no longer have
  fedjax) packages="fedjax==0.0.17 jax==0.4.25 jaxlib==0.4.25 dm-haiku==0.0.12 numpy<2 scipy<1.13" ;;
  flower) exec make .venv-flower/.installed ;;
  *)
    echo "usage: benchmarks/race/install.sh NAME"
    echo "NAME: pfllib flbench fluke blazefl pfl-research fedjax flower"
    exit 2 ;;
esac

newest() { # the first interpreter that is new enough
  for python in ${PYTHON:-} python3 python3.12 python3.13; do
    "$python" -c "import sys; sys.exit(sys.version_info < tuple(map(int, '$least'.split('.'))))" \
      2>/dev/null && { command -v "$python"; return; }
  done
}
python=$(newest)
log=.venv-$name.log
if [ -z "$python" ]; then
  echo "error: $name needs Python $least or newer; PYTHON=/path/to/it $0 $name" | tee "$log"
  exit 1
fi
rm -rf ".venv-$name" "$log"
"$python" -m venv ".venv-$name"
set -f # the brackets of extras are no pattern
if UV_FIND_LINKS="${PIP_FIND_LINKS:-}" .venv/bin/uv pip install -q --compile-bytecode \
  --python ".venv-$name/bin/python" $packages 2>"$log"; then
  rm "$log"
  touch ".venv-$name/.installed"
  echo "$name is in .venv-$name"
else
  cat "$log"
  exit 1
fi
