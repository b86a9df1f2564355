#!/usr/bin/env bash
# Fill static/vendor with the browser files that the built pages need, so that the book works
# with no internet, and tests/site/vendor with what the tests look at pages with. The results are
# committed: run this only to move to another version (needs npm).
set -euo pipefail
cd "$(dirname "$0")/.."
mathjax=3.2.2
reveal=6.0.2
axe=4.14.0
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

fetch() { # fetch NAME VERSION: unpack a package into $tmp/NAME
  (cd "$tmp" && npm pack --silent "$1@$2" >/dev/null && tar xzf "$1-$2.tgz" && mv package "$1")
}

fetch mathjax "$mathjax"
from=$tmp/mathjax to=static/vendor/mathjax
rm -rf "$to"
mkdir -p "$to/output/chtml" "$to/input/tex/extensions"
cp "$from/LICENSE" "$to/"
cp "$from/es5/tex-chtml.js" "$to/"
cp -R "$from/es5/output/chtml/fonts" "$to/output/chtml/"
# TeX extensions that tex-chtml loads on demand; the menu and the speech engine (5 MB) are left
# out, and _config.yml switches them off. Screen readers still get MathML, made by tex-chtml.
cp "$from"/es5/input/tex/extensions/*.js "$to/input/tex/extensions/"
rm "$to/input/tex/extensions/all-packages.js"
echo "MathJax $mathjax" >"$to/VERSION"

# Slides. The look is our own (static/slides.css), so no theme and none of its fonts.
fetch reveal.js "$reveal"
from=$tmp/reveal.js to=static/vendor/reveal
rm -rf "$to"
mkdir -p "$to"
cp "$from/LICENSE" "$from/dist/reset.css" "$from/dist/reveal.css" "$from/dist/reveal.js" \
  "$from/dist/plugin/notes.js" "$to/"
echo "reveal.js $reveal" >"$to/VERSION"

# The accessibility checker of the tests; no page loads it.
fetch axe-core "$axe"
from=$tmp/axe-core to=tests/site/vendor/axe
rm -rf "$to"
mkdir -p "$to"
cp "$from/LICENSE" "$from/axe.min.js" "$to/"
echo "axe-core $axe" >"$to/VERSION"
