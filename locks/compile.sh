#!/usr/bin/env bash
# Make the locks from pyproject.toml, with a hash for every file. By hand, after a change of dependencies.
# Usage: locks/compile.sh [--upgrade]. Versions move only with --upgrade.
#   cpu.lock, gpu.lock   what a user's installation holds, but for torch's CPU build (torch_cpu.txt)
#   build.lock           what installs it, and builds this package
#   dev.lock             what tests and checks need besides
set -euo pipefail
cd "$(dirname "$0")/.."
upgrade="${1:-}"

compile() {  # LOCK OPTION...
    echo "locks/$1"
    .venv/bin/uv pip compile --universal --python-version 3.11 --fork-strategy fewest \
        --generate-hashes --no-header --no-annotate --quiet \
        --excludes locks/unused.txt $upgrade "${@:2}" -o "locks/$1"
}

# Packages of a lock, which another need not hold again.
without() {
    grep -hoE '^[a-z0-9-]+==' "$@" | sort -u | sed 's/==$//; s/^/--no-emit-package /'
}

user=(pyproject.toml --extra gguf --extra gui --extra mcp --extra reasoning --extra swe)
# Resolved with the index's build of the same version, of which only the name is needed.
torch=$(mktemp)
trap 'rm -f "$torch"' EXIT
sed -n 's/^\(torch==[0-9.]*\).*/\1/p' locks/torch_cpu.txt >"$torch"
cpu=(--extra cpu --excludes locks/unused_cpu.txt --override "$torch")
compile cpu.lock "${user[@]}" "${cpu[@]}" $(without locks/torch_cpu.txt)
compile gpu.lock "${user[@]}" --extra gpu
compile build.lock --group build --constraints locks/cpu.lock
compile dev.lock "${user[@]}" "${cpu[@]}" --group dev \
    --constraints locks/cpu.lock --constraints locks/build.lock \
    $(without locks/torch_cpu.txt locks/cpu.lock locks/build.lock)
