#!/usr/bin/env bash
# Builds the wheel and installs it without extras, beside the oldest protobuf and grpcio that it allows: what a downstream
# service with older pins gets. The SDK must import there, and load nothing heavy.
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
.venv/bin/pip wheel --quiet --no-deps --wheel-dir "$work" .
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet "$work"/interlock-*.whl 'protobuf==5.29.*' 'grpcio==1.71.2' 'grpcio-status==1.71.2'
cd "$work"
venv/bin/python - <<'PYTHON'
import sys

import interlock.client
from interlock.bootstrap.v1 import bootstrap_service_pb2_grpc
from interlock.preprocess.v1 import preprocess_service_pb2_grpc

heavy = {"numpy", "PIL", "numba", "numexpr", "click", "rich"} & sys.modules.keys()
assert not heavy, f"the client loads {sorted(heavy)}"
PYTHON
if message=$(venv/bin/interlock --help 2>&1); then
    echo "the command line must say that it needs an extra; it said: $message"
    exit 1
fi
echo "$message"
