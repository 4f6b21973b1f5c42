#!/usr/bin/env bash
# Renew both locks from pyproject.toml. Run by hand after a change of dependencies.
set -euo pipefail
cd "$(dirname "$0")/.."
. locks/torch_index.sh
common=(pyproject.toml --extra gui --extra mcp --extra swe --extra dev --python-version 3.11
        --python-platform x86_64-unknown-linux-gnu --no-header --no-annotate --quiet --upgrade
        --override locks/unused.txt)
.venv/bin/uv pip compile "${common[@]}" --extra cpu --override locks/overrides.txt \
    ${TORCH_ARGS[@]+"${TORCH_ARGS[@]}"} -o locks/cpu.lock
.venv/bin/uv pip compile "${common[@]}" --extra gpu -o locks/gpu.lock
# The local label (+cpu) names one build of a version; the lock pins the version.
sed -i 's/^\(torch==[0-9.]*\)+cpu$/\1/' locks/cpu.lock
