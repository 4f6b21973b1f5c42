"""Information for the clients of `serve`: its key, and the snippet for openclaw.json."""

from __future__ import annotations

import secrets

from clawrl_gym.config import ServeConfig
from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.files.files import private_files
from clawrl_gym.gateway.admission.admission import check_key
from clawrl_gym.gateway.openclaw import snippet
from clawrl_gym.run_folder.folder import RunFolder, serving_folder

_KEY_FILE = "gateway.key"


def write_snippet(config: ServeConfig) -> str:
    """The snippet to paste into openclaw.json; works beside a serving that runs."""
    gateway = config.gateway
    check_key(gateway)
    if gateway.port == 0:
        raise ConfigError(
            "got gateway.port=0 with print_config=true, expected the port that clients shall use: "
            "a free one is only known once serving has begun"
        )
    host = f"[{gateway.host}]" if ":" in gateway.host else gateway.host
    return snippet(
        f"http://{host}:{gateway.port}",
        key_of(config, serving_folder(config)),
        context_window=config.policy.max_model_len,
        max_tokens=config.policy.sampling.max_tokens,
    )


def key_of(config: ServeConfig, folder: RunFolder) -> str:
    """The configured key, else the folder's own: the same in every run, so clients keep working."""
    if config.gateway.key is not None:
        return config.gateway.key
    path = folder.path / _KEY_FILE
    try:
        if not path.exists():
            with private_files():
                folder.path.mkdir(parents=True, exist_ok=True)
                path.write_text(f"sk-{secrets.token_urlsafe(32)}")
        return path.read_text().strip()
    except OSError as error:
        raise ConfigError(
            f"cannot keep the gateway's key in {path}: {error.strerror}; choose another folder "
            "(run.dir=PATH), or give gateway.key=SECRET"
        ) from error


def key_place(config: ServeConfig, folder: RunFolder) -> str:
    """Place where a person finds the key, which no output tells."""
    return "gateway.key" if config.gateway.key is not None else f"in {folder.path / _KEY_FILE}"
