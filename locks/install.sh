#!/usr/bin/env bash
# Make the virtual environment and install the pinned lock: all the set-up there is.
# Usage: locks/install.sh cpu|gpu. Does nothing when the lock is already installed.
set -euo pipefail
cd "$(dirname "$0")/.."
build="${1:?usage: locks/install.sh cpu|gpu}"
lock="locks/$build.lock"
uv_version="0.13.8"

install_system_packages() {
    local missing=()
    command -v bwrap >/dev/null || missing+=(bubblewrap)
    command -v git >/dev/null || missing+=(git)
    command -v g++ >/dev/null || missing+=(g++)
    ldconfig -p | grep -q 'libnuma\.so\.1' || missing+=(libnuma1)
    "$python" -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
    [ ${#missing[@]} -gt 0 ] || return 0
    if [ "$(id -u)" -ne 0 ]; then
        echo "missing system packages: ${missing[*]}" >&2
        echo "install them and try again: sudo apt-get install -y ${missing[*]}" >&2
        exit 1
    fi
    echo "installing system packages: ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

find_python() {
    local candidate
    for candidate in "${PYTHON:-python3}" python3.13 python3.12 python3.11; do
        if "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' \
            2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    echo "no Python from 3.11 to 3.13 found; install one (apt-get install python3 python3-venv)" >&2
    echo "or name it: PYTHON=/path/to/python3.12 make setup" >&2
    exit 1
}

if ! command -v python3 >/dev/null && [ -z "${PYTHON:-}" ] && [ "$(id -u)" -eq 0 ]; then
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends python3 python3-venv >/dev/null
fi
python=$(find_python)
install_system_packages
stamp=".venv/.installed-$build-$(sha256sum "$lock" pyproject.toml | sha256sum | cut -c1-16)"
[ ! -e "$stamp" ] || exit 0

started=$(date +%s)
echo "setting up .venv from $lock ($build build of vLLM); this happens once"
[ -x .venv/bin/python ] || "$python" -m venv .venv
.venv/bin/python -m pip install --quiet --disable-pip-version-check "uv==$uv_version"
arguments=()
if [ "$build" = cpu ]; then
    . locks/torch_index.sh
    arguments=("${TORCH_ARGS[@]}")
fi
uv=(.venv/bin/uv pip install --python .venv/bin/python --no-deps --quiet)
"${uv[@]}" ${arguments[@]+"${arguments[@]}"} --requirement "$lock"
"${uv[@]}" --editable .
rm -f .venv/.installed-*
touch "$stamp"
echo "set up in $(($(date +%s) - started)) s"
