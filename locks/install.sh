#!/usr/bin/env bash
# Make the virtual environment and install the pinned locks: all the set-up there is.
# Usage: locks/install.sh cpu|gpu [dev]. Does nothing when it is installed already; every file that is
# downloaded has its hash in a lock. What was interrupted is made anew by the next call.
set -euo pipefail
cd "$(dirname "$0")/.."
build="${1:?usage: locks/install.sh cpu|gpu [dev]}"
layer="${2:-}"

stop() {  # LINE...: what happened, and what to do
    printf 'setup: %s\n' "$@" >&2
    exit 1
}

check_machine() {
    case "$(uname -s) $(uname -m)" in
        "Linux x86_64") ;;
        "Linux aarch64") echo "setup: on aarch64 all packages exist, but nothing here has been run on it" ;;
        Linux*) stop "this machine is $(uname -m), for which PyTorch and vLLM have no builds; x86_64 is needed" ;;
        *) stop "this is $(uname -s); Linux is needed (a virtual machine, or Docker: docker/README.md)" ;;
    esac
}

fits() {  # PYTHON: is it one of the versions that the locks are for?
    "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null
}

find_python() {
    local candidate
    for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11}; do
        if fits "$candidate"; then
            command -v "$candidate"
            return
        fi
    done
    candidate=$("${PYTHON:-python3}" -V 2>/dev/null || echo missing)
    stop "Python 3.11, 3.12 or 3.13 is needed; ${PYTHON:-python3} is $candidate" \
        "install one and name it: PYTHON=/path/to/python3.12 make setup"
}

# What comes from the system, as Debian calls it. A library is sought as its user will: by loading it.
missing_packages() {  # PYTHON, or nothing where there is none yet
    local python="$1"
    command -v bwrap >/dev/null || echo bubblewrap
    command -v git >/dev/null || echo git
    command -v g++ >/dev/null || echo g++
    if [ -z "$python" ]; then
        printf '%s\n' libnuma1 python3 python3-venv
        return
    fi
    "$python" -c 'import ctypes; ctypes.CDLL("libnuma.so.1")' 2>/dev/null || echo libnuma1
    "$python" -c 'import ensurepip, venv' 2>/dev/null ||
        "$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])'
}

install_system_packages() {  # NAME...
    [ $# -gt 0 ] || return 0
    if [ -n "${NO_SYSTEM_PACKAGES:-}" ]; then
        echo "setup: going on without $*"
        return
    fi
    [ "$(id -u)" -eq 0 ] ||
        stop "missing system packages: $*" \
            "install them: sudo apt-get install -y $*" \
            "or go on without (no bubblewrap: no sandboxes but Docker's): NO_SYSTEM_PACKAGES=1 make setup"
    command -v apt-get >/dev/null ||
        stop "missing system packages: $* (Debian's names); install them with this system's own tool"
    echo "setup: installing system packages: $*"
    export DEBIAN_FRONTEND=noninteractive
    attempt apt-get update -qq
    attempt apt-get install -y -qq --no-install-recommends -o DPkg::Lock::Timeout=120 "$@"
}

# Why the virtual environment cannot be built on; nothing if it can.
venv_fault() {
    local folder
    [ -e .venv ] || [ -L .venv ] || return 0
    folder=$(cd -P .venv 2>/dev/null && pwd) || folder=
    if [ -e .venv/.installing ]; then
        echo "an installation into .venv was interrupted"
    elif ! .venv/bin/python -c '' 2>/dev/null; then
        echo "the Python of .venv is gone"
    elif ! fits .venv/bin/python; then
        echo ".venv is of $(.venv/bin/python -V)"
    elif ! grep -qsF "$folder/bin/python" .venv/bin/pip; then
        echo ".venv was made in another folder, or only half"
    elif [ -n "$(compgen -G ".venv/.installed-$other_build-*")" ]; then
        echo ".venv holds the $other_build build"
    fi
}

make_venv() {
    local fault
    fault=$(venv_fault)
    if [ -n "$fault" ]; then
        [ ! -L .venv ] || stop "$fault, and .venv is a link; remove the link and try again"
        echo "setup: $fault; making it anew"
    elif [ -e .venv ]; then
        return 0
    fi
    check_space
    attempt "$python" -m venv --clear .venv
}

# Run a command in silence; if it fails, say in one line why and what to do.
attempt() {
    local output
    output=$("$@" 2>&1 </dev/null) || explain "$output"
}

explain() {  # OUTPUT of the command that failed
    local again="then run the same command again"
    case "$1" in
        *"No space left on device"* | *"os error 28"* | *"Disk quota exceeded"*)
            stop "the disk is full: free $needed_gb GB in $PWD (and in ${UV_CACHE_DIR:-~/.cache/uv}), $again" ;;
        *[Hh]"ash mismatch"* | *"DO NOT MATCH THE HASHES"*)
            stop "a downloaded file is not the one that was locked; nothing of it was installed:" \
                "$(grep -iE -m 1 'mismatch|for .*==|from https?' <<<"$1")" ;;
        *ertificate* | *CERTIFICATE* | *UnknownIssuer*)
            stop "the package index's certificate is not trusted; name your proxy's: SSL_CERT_FILE=/path/to/ca.pem, $again" ;;
        *"ProxyError"* | *"annot connect to proxy"* | *"tunnel error"* | *"roxy auth"*)
            stop "the proxy ${HTTPS_PROXY:-${https_proxy:-}} does not answer or refuses; set HTTPS_PROXY=http://user:password@host:port, $again" ;;
        *"ailed to fetch"* | *"ailed to establish"* | *"ould not resolve"* | *"Temporary failure"* | \
            *"timed out"* | *"error sending request"* | *"ould not find a version"* | *"Failed to download"* | \
            *"Unable to locate package"*)
            stop "a package index cannot be reached; check the network (behind a proxy: HTTPS_PROXY; a mirror: PIP_INDEX_URL; the CPU build of torch in a folder: PIP_FIND_LINKS), $again" \
                "$(grep -vE '^ *$' <<<"$1" | tail -n 1 | cut -c1-300)" ;;
        *"ermission denied"*) stop "permission denied: is $PWD/.venv of another user? remove it, $again" ;;
        *) stop "$(tail -n 5 <<<"$1")" "that failed; mend it, $again" ;;
    esac
}

check_space() {
    local free_mb
    free_mb=$(df -Pm . | awk 'NR == 2 { print $4 }')
    [ "$free_mb" -ge $((needed_gb * 1000)) ] ||
        stop "$PWD has $((free_mb / 1000)) GB free; the installation needs $needed_gb GB"
}

stamp() {  # NAME FILE...: the file that stands for these files being installed
    echo ".venv/.installed-$1-$(cat "${@:2}" | sha256sum | cut -c1-16)"
}

install_locks() {  # LOCK...
    local lock arguments=()
    if [ "$build" = cpu ]; then
        . locks/index.sh
        arguments=("${TORCH_ARGS[@]}")
    fi
    for lock in "$@"; do arguments+=(--requirement "$lock"); done
    attempt .venv/bin/uv pip install --python .venv/bin/python --no-deps --no-build-isolation \
        --require-hashes "${arguments[@]}"
}

install_user() {
    attempt .venv/bin/python -m pip install --require-hashes --no-deps --retries 2 \
        --disable-pip-version-check --requirement locks/build.lock
    install_locks "${locks[@]}"
    attempt .venv/bin/uv pip install --python .venv/bin/python --no-deps --no-build-isolation --editable .
}

case "$build" in
    cpu) other_build=gpu locks=(locks/torch_cpu.txt locks/cpu.lock) needed_gb=4 ;;
    gpu) other_build=cpu locks=(locks/gpu.lock) needed_gb=12 ;;
    *) stop "got build '$build', expected cpu or gpu" ;;
esac

# One installation in a folder at a time; a second one waits and then finds all done.
if command -v flock >/dev/null; then
    exec 9<.
    flock -n 9 || { echo "setup: another installation runs in this folder; waiting for it"; flock 9; }
fi
started=$(date +%s)
check_machine
if [ -z "${PYTHON:-}$(compgen -c python3)" ]; then
    install_system_packages $(missing_packages "")
fi
python=.venv/bin/python
if [ ! -e .venv ] || [ -n "$(venv_fault)" ]; then
    python=$(find_python)
fi
install_system_packages $(missing_packages "$python")
make_venv
user_stamp=$(stamp "$build" "${locks[@]}" locks/build.lock pyproject.toml)
dev_stamp=$(stamp dev locks/dev.lock)
if [ ! -e "$user_stamp" ]; then
    echo "setup: installing the $build build of vLLM and what it needs into .venv; this happens once"
    touch .venv/.installing
    install_user
    rm -f .venv/.installed-*
    touch "$user_stamp"
fi
if [ "$layer" = dev ] && [ ! -e "$dev_stamp" ]; then
    echo "setup: installing what tests and checks need"
    touch .venv/.installing
    install_locks locks/dev.lock
    rm -f .venv/.installed-dev-*
    touch "$dev_stamp"
fi
if [ -e .venv/.installing ]; then
    rm .venv/.installing
    echo "setup: done in $(($(date +%s) - started)) s"
fi
