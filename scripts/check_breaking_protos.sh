#!/usr/bin/env bash
# Compares protos/ with an earlier commit: a change that breaks a client fails. Offline: buf reads this repository.
# The earlier commit is $INTERLOCK_BREAKING_AGAINST, else origin/main, else (on main itself) the commit before.
set -euo pipefail
cd "$(dirname "$0")/.."

head=$(git rev-parse HEAD)
base=${INTERLOCK_BREAKING_AGAINST:-}
for candidate in origin/main HEAD~1; do
    commit=$(git rev-parse --verify --quiet "$candidate^{commit}") || continue
    [ -n "$base" ] || [ "$commit" = "$head" ] || base=$candidate
done
if [ -z "$base" ] || ! git cat-file -e "$base:buf.yaml" 2>/dev/null; then
    echo "buf breaking: nothing to compare with (no earlier commit has protos)"
    exit 0
fi
.venv/bin/buf breaking --against ".git#ref=$(git rev-parse "$base^{commit}")"
echo "buf breaking: nothing breaks against $base"
