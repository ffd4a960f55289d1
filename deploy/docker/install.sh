#!/bin/sh
# Installs one service into PREFIX, where it will run: pinned packages, the wheel, the bill of materials and, for
# Preprocess, compiled kernels. Nothing is written to PREFIX afterwards.
set -eu
[ $# -eq 4 ] || { echo "usage: install.sh bootstrap|preprocess TOOLS DIST PREFIX" >&2; exit 2; }
service=$1 tools=$2 dist=$3 prefix=$4
requirements=$(dirname "$0")/requirements/$service.txt

into_prefix() { "$tools/bin/pip" --python "$prefix/bin/python3" "$@"; }

# Without pip: what runs installs nothing.
python3 -m venv --without-pip "$prefix"
into_prefix install --quiet --no-cache-dir --no-deps --require-hashes --only-binary :all: -r "$requirements"
into_prefix install --quiet --no-cache-dir --no-deps --no-index "$dist"/interlock-*.whl
into_prefix check

"$tools/bin/cyclonedx-py" environment --output-reproducible --of JSON -o "$prefix/sbom.cdx.json" "$prefix/bin/python3"

if [ "$service" = preprocess ]; then
    "$prefix/bin/interlock" warmup --kernel-cache-folder "$prefix/kernels"
fi
