#!/usr/bin/env bash
# Fill static/vendor with the browser files that the built pages need, so that the book works
# with no internet. The result is committed: run this only to move to another version (needs npm).
set -euo pipefail
cd "$(dirname "$0")/.."
mathjax=3.2.2
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
(cd "$tmp" && npm pack --silent "mathjax@$mathjax" >/dev/null && tar xzf mathjax-*.tgz)
from=$tmp/package to=static/vendor/mathjax
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
