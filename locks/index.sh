# Sourced: where uv takes packages from, as pip is configured (environment, pip.conf).
# The CPU build of torch is on PyTorch's own index, unless pip knows a folder of wheels that holds it:
# then no other index is asked, since asking one that cannot be reached stalls.
pip_setting() {  # NAME: its values, one a line
    sed -nE "s/^(global|install|:env:)\.$1='(.*)'$/\2/p" <<<"$pip_settings"
}

pip_settings=$(.venv/bin/python -m pip config list 2>/dev/null || true)
mirror=$(pip_setting index-url | tail -n 1)
certificates=$(pip_setting cert | tail -n 1)
[ -z "$mirror" ] || export UV_DEFAULT_INDEX="${UV_DEFAULT_INDEX:-$mirror}"
[ -z "$certificates" ] || export SSL_CERT_FILE="${SSL_CERT_FILE:-$certificates}"

TORCH_ARGS=(--torch-backend=cpu)
for folder in $(pip_setting find-links); do
    if compgen -G "${folder#file://}/torch-*cpu*.whl" >/dev/null; then
        TORCH_ARGS=(--find-links "$folder")
        break
    fi
done
