#!/usr/bin/env bash
# Compares protos/ with those of the main branch: a change that breaks a client fails. Offline: buf reads this
# repository. The base is $INTERLOCK_BREAKING_AGAINST, else origin/main, else the commit before this one.
set -euo pipefail
cd "$(dirname "$0")/.."

base=${INTERLOCK_BREAKING_AGAINST:-}
for candidate in origin/main HEAD~1; do
    [ -n "$base" ] || ! git rev-parse --verify --quiet "$candidate^{commit}" >/dev/null || base=$candidate
done
if [ -z "$base" ] || ! git cat-file -e "$base:buf.yaml" 2>/dev/null; then
    echo "buf breaking: nothing to compare with (no earlier commit has protos)"
    exit 0
fi
commit=$(git rev-parse "$base^{commit}")
.venv/bin/buf breaking --against ".git#ref=$commit"
echo "buf breaking: nothing breaks against $base"
