"""The gateway of a folder that is served in, or will be."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from clawrl_gym.clients.client import Gateway
from clawrl_gym.config import ServeConfig
from clawrl_gym.config.compose import compose
from clawrl_gym.core.errors import ConfigError
from clawrl_gym.run_folder.folder import RunFolder
from clawrl_gym.serving.clients import key_of

_ANY_HOST = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # to be replaced
_NOT_IN_A_KEY = frozenset(" \"'$\\#")
"""What files of settings read as something else."""


def served_gateway(
    folder: Path, model: str, url: str | None = None, key: str | None = None
) -> Gateway:
    """The folder's gateway; `url` and `key` are given for another, or by a user with a key.

    Raises ConfigError for an address or a key that cannot be one.
    """
    if url is not None and key is None:
        raise ConfigError("got --url without --key, expected the key of that gateway, too")
    run = RunFolder(folder)
    config = run.read_config(ServeConfig) if run.exists else compose("serve", [], ServeConfig)
    key = key if key is not None else key_of(config, run)
    if not key or not key.isascii() or not key.isprintable() or not _NOT_IN_A_KEY.isdisjoint(key):
        raise ConfigError("--key: expected printable ASCII without spaces, quotes, $, \\ and #")
    if url is not None:
        return Gateway(_checked(url), key, model)
    host, port = config.gateway.host, config.gateway.port
    if port == 0:
        raise ConfigError(f"{run.config_file} has gateway.port=0, any free one: give --url")
    host = _ANY_HOST.get(host) or (f"[{host}]" if ":" in host else host)
    context = config.policy.max_model_len if run.exists else None
    return Gateway(f"http://{host}:{port}", key, model, context)


def _checked(url: str) -> str:
    """The address without `/v1`."""
    try:
        parts = urlsplit(url)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number
        is_url = False
    if not is_url or parts.query or parts.fragment or not url.isascii() or not url.isprintable():
        raise ConfigError(f"got --url {url!r}, expected one such as http://127.0.0.1:8808")
    return url.rstrip("/").removesuffix("/v1").rstrip("/")
