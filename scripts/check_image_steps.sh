#!/usr/bin/env bash
# Proves the images' steps without an engine: the very scripts that deploy/docker/Dockerfile runs, by an unprivileged
# user in a folder of its own, with this machine's Python for the base. Then it serves from there. As root all of it is
# done in a mount namespace, where the services find what Kubernetes gives them: a file system that is read-only but for
# /tmp and /dev/shm. Else the prefix alone is read-only.
set -euo pipefail
cd "$(dirname "$0")/.."
is_root=$([ "$(id -u)" = 0 ] && echo yes || echo no)

if [ "${1:-}" != inside ]; then
    work=$(mktemp -d /var/tmp/interlock-image-XXXXXX)
    trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
    chmod 755 "$work"
    if [ "$is_root" = yes ]; then
        unshare --mount scripts/check_image_steps.sh inside "$work"
    else
        scripts/check_image_steps.sh inside "$work"
    fi
    exit
fi

work=$2
mkdir "$work/src" "$work/prefix" "$work/home"
python=$(python3 -c 'import sys; print(sys.base_prefix)')
user=(env -i HOME="$work/home" PIP_DISABLE_PIP_VERSION_CHECK=1)
[ -z "${PIP_CERT:-}" ] || user+=(PIP_CERT="$PIP_CERT")
# What the build sees, and no more (.dockerignore).
git ls-files -z --cached --others --exclude-standard \
    deploy/docker libs services benchmarks pyproject.toml README.md LICENSE | xargs -0 cp --parents -t "$work/src"
cp scripts/serve_from_prefix.py "$work"
if [ "$is_root" = yes ]; then
    case $python in /root/*)  # where only root can read: what is there is hidden, but for Python
        mkdir "$work/python"
        mount --bind "$python" "$work/python"
        mount -t tmpfs -o mode=755 tmpfs /root
        mkdir -p "$python"
        mount --bind "$work/python" "$python"
    esac
    chown -R 65532:65532 "$work/src" "$work/prefix" "$work/home" "$work/serve_from_prefix.py"
    chown 65532:65532 "$work"
    user+=(setpriv --reuid=65532 --regid=65532 --clear-groups)
fi
user=(env -i PATH="$python/bin:/usr/bin:/bin" "${user[@]:2}")
steps=$work/src/deploy/docker
cd "$work"

echo "build tools, and the wheel"
"${user[@]}" python3 -m venv tools
"${user[@]}" tools/bin/pip install --quiet --no-cache-dir --require-hashes --no-deps -r "$steps/requirements/tools.txt"
"${user[@]}" "$steps/build-wheel.sh" "$work/tools" "$work/dist"

for service in bootstrap preprocess; do
    echo "the steps of $service"
    "${user[@]}" "$steps/install.sh" "$service" "$work/tools" "$work/dist" "$work/prefix/$service"
done
chmod -R a-w prefix
rm -rf src tools dist

echo "serve"
if [ "$is_root" = yes ]; then
    mount -t tmpfs tmpfs /tmp
    mount -o bind,remount,ro /
fi
for service in bootstrap preprocess; do
    "${user[@]}" "prefix/$service/bin/python3" serve_from_prefix.py "$service"
done
