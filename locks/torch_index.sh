# Sourced: where the CPU build of torch comes from. pip may be configured with a folder of wheels
# (find-links) that holds it; then uv is pointed there and no other index is asked, since asking
# one that cannot be reached stalls. Everywhere else it is PyTorch's own CPU index.
TORCH_ARGS=(--torch-backend=cpu)
find_links="${PIP_FIND_LINKS:-} $(.venv/bin/python -m pip config get global.find-links 2>/dev/null || true)"
for folder in $find_links; do
    if compgen -G "${folder#file://}/torch-*cpu*.whl" >/dev/null; then
        TORCH_ARGS=(--find-links "$folder")
        break
    fi
done
