#!/usr/bin/env bash
# Chromium for browser tasks, where none is: Debian's headless build as root, else Playwright's own.
# Usage: locks/browser.sh   (after locks/install.sh)
set -euo pipefail
cd "$(dirname "$0")/.."

found() {
    [ -x /usr/lib/chromium/chromium-headless-shell ] ||
        compgen -G "${PLAYWRIGHT_BROWSERS_PATH:-$HOME/.cache/ms-playwright}/chromium*" >/dev/null
}

# Without a font, text on pages is empty boxes.
packages=(chromium-headless-shell fonts-liberation)
if found && { [ "$(id -u)" -ne 0 ] || [ -n "$(ls -A /usr/share/fonts/truetype 2>/dev/null)" ]; }; then
    exit 0
fi
if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
    echo "installing system packages: ${packages[*]}"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    if apt-cache show chromium-headless-shell >/dev/null 2>&1; then
        apt-get install -y -qq --no-install-recommends "${packages[@]}" >/dev/null
        exit 0
    fi
    exec .venv/bin/python -m playwright install --with-deps chromium-headless-shell
fi
exec .venv/bin/python -m playwright install chromium-headless-shell
