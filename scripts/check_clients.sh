#!/usr/bin/env bash
# The stub packages and the client programs of the languages named (all if none): generated code as the protos give it,
# format, lint, and every vector. Running the programs is for `interlock demo --clients`.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD

at() { cd "$root/$1"; }

# Generated code that is committed must be what the protos give.
unchanged() {
    [ -z "$(git -C "$root" status --porcelain -- "$@")" ] || { git -C "$root" diff -- "$@"; git -C "$root" status --short -- "$@"; exit 1; }
}

check_go() {
    at . && PATH="$root/.venv/bin:$PATH" buf generate --template packages/go/buf.gen.yaml
    unchanged packages/go
    for module in packages/go examples/clients/go; do
        at $module
        [ -z "$(gofmt -l .)" ] || { gofmt -d .; exit 1; }
        go vet ./...
        go run honnef.co/go/tools/cmd/staticcheck@v0.8.2 ./...
        go test ./...
    done
}

check_rust() {
    at packages/rust
    cargo run --quiet -p generate
    unchanged packages/rust/src/gen
    cargo fmt --all --check
    cargo clippy --quiet --workspace --all-targets --all-features -- -D warnings
    cargo test --quiet --all-features
    at examples/clients/rust
    cargo fmt --check
    cargo clippy --quiet --all-targets -- -D warnings
    cargo test --quiet
}

check_node() {
    for package in packages/npm examples/clients/node; do
        at $package
        npm ci --no-audit --no-fund
        npm run lint
        npm test
    done
}

check_java() {
    at packages/maven
    mvn --batch-mode --no-transfer-progress install
    at examples/clients/java
    mvn --batch-mode --no-transfer-progress verify
}

check_cpp() {
    at examples/clients/cpp
    find . -path ./build -prune -o \( -name '*.cpp' -o -name '*.h' \) -print0 | xargs -0 clang-format --dry-run --Werror
    cmake -S . -B build -G Ninja -DBUILD_TESTING=ON
    cmake --build build
    ctest --test-dir build --output-on-failure
}

for language in "${@:-go rust node java cpp}"; do
    for one in $language; do
        printf -- '--- %s\n' "$one"
        (check_"$one")
    done
done
