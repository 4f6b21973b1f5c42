#!/usr/bin/env bash
# A Docker engine of one's own, below one folder, for tests: no bridge, no firewall rules, no service.
# Usage (as root): docker/engine.sh install | start DIR | stop DIR
# `start` prints the engine's address on standard output, and what to do with it on standard error.
# DIR/host holds the address while the engine runs; images in DIR stay from start to start.
set -euo pipefail

fail() {
    echo "engine.sh: $*" >&2
    exit 1
}

install_engine() {
    local missing=()
    command -v dockerd >/dev/null || missing+=(docker.io)
    command -v debootstrap >/dev/null || missing+=(debootstrap)
    [ ${#missing[@]} -gt 0 ] || return 0
    command -v apt-get >/dev/null ||
        fail "no ${missing[*]} and no apt-get: install them as your system does (docker, moby-engine), then: $0 start DIR"
    export DEBIAN_FRONTEND=noninteractive
    echo "engine.sh: installing ${missing[*]}" >&2
    apt-get update -qq || fail "apt-get update failed; is there a network?"
    # Without its service: nothing is started but by `start`.
    RUNLEVEL=1 apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null ||
        fail "apt-get could not install ${missing[*]}; its words are above"
}

answers() {
    curl -fsS -m 2 --unix-socket "$1" http://docker/_ping >/dev/null 2>&1 ||
        python3 - "$1" 2>/dev/null <<'PYTHON'
import socket, sys
with socket.socket(socket.AF_UNIX) as client:
    client.settimeout(2)
    client.connect(sys.argv[1])
    client.sendall(b"GET /_ping HTTP/1.0\r\nHost: docker\r\n\r\n")
    sys.exit(b" 200 " not in client.recv(64))
PYTHON
}

# A socket's path has at most 107 characters, so it may not be able to live in DIR.
socket_of() {
    echo "/run/clawrl-docker-$(cksum <<<"$1" | cut -d" " -f1).sock"
}

running() {
    [ -s "$1/pid" ] && grep -qa dockerd "/proc/$(<"$1/pid")/cmdline" 2>/dev/null
}

# Who came here by sudo may ask the engine, too; others by the group docker.
let_in() {
    [ -z "${SUDO_UID:-}" ] || chown "$SUDO_UID" "$2"
    echo "$3" >"$1/host"
    chmod 755 "$1"
    chmod 644 "$1/host"
}

explain() {
    cat >&2 <<WORDS
A Docker engine of this folder's own runs, with its images in $1.
  python -m clawrl_gym.train env=swe     finds it by itself, in the folder that holds ${1##*/}
  export DOCKER_HOST=$2     for docker's own commands, and elsewhere
  $0 stop $1     ends it
WORDS
}

start_engine() {
    command -v dockerd >/dev/null || fail "no dockerd here; first, as root: $0 install"
    mkdir -p "$1" || fail "cannot make the folder $1"
    local dir socket launched=""
    dir=$(cd "$1" && pwd)
    socket=$(socket_of "$dir")
    if ! running "$dir"; then
        rm -f "$dir/pid"
        setsid dockerd --data-root "$dir/data" --exec-root "${socket%.sock}" --pidfile "$dir/pid" \
            --host "unix://$socket" --bridge=none --iptables=false --ip-forward=false --ip-masq=false \
            </dev/null >"$dir/log" 2>&1 &
        launched=$!
    fi
    for _ in $(seq 300); do
        if answers "$socket"; then
            let_in "$dir" "$socket" "unix://$socket"
            explain "$dir" "unix://$socket"
            echo "unix://$socket"
            return
        fi
        if [ -n "$launched" ] && ! kill -0 "$launched" 2>/dev/null; then
            tail -n 3 "$dir/log" >&2
            fail "the engine in $dir ended at its start; above are its last words, all are in $dir/log"
        fi
        sleep 0.1
    done
    tail -n 3 "$dir/log" >&2
    fail "the engine in $dir does not answer within 30 s (its words: $dir/log); it may still: try again"
}

stop_engine() {
    rm -f "$1/host"
    if ! running "$1"; then
        echo "engine.sh: no engine runs in $1" >&2
        return
    fi
    local dir socket pid
    dir=$(cd "$1" && pwd)
    socket=$(socket_of "$dir")
    pid=$(<"$dir/pid")
    kill "$pid"
    for _ in $(seq 300); do
        if [ ! -d "/proc/$pid" ]; then
            rm -rf "${socket:?}" "${socket%.sock}"
            return
        fi
        sleep 0.1
    done
    fail "the engine $pid does not end"
}

need_root() {
    [ "$(id -u)" -eq 0 ] || fail "needs root: sudo ${COMMAND:-$0 $*}
Without root: an engine that an administrator starts, rootless Docker (docs.docker.com/engine/security/rootless),
or none at all: sandbox=bubblewrap needs none."
}

case "${1:-} ${2:+dir}" in
    "install ") need_root "$@" && install_engine ;;
    "start dir") need_root "$@" && start_engine "$2" ;;
    "stop dir") need_root "$@" && stop_engine "$2" ;;
    *) fail "usage: $0 install | start DIR | stop DIR" ;;
esac
