#!/bin/sh
# Builds the wheel of this checkout, without asking a registry for the build tools: TOOLS has them.
set -eu
[ $# -eq 2 ] || { echo "usage: build-wheel.sh TOOLS DIST" >&2; exit 2; }
tools=$1 dist=$2
cd "$(dirname "$0")/../.."
"$tools/bin/pip" wheel --quiet --no-deps --no-build-isolation --no-cache-dir --wheel-dir "$dist" .
