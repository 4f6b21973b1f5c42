"""Names of the Docker images that hold instances' repositories, and how to have them here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from clawrl_gym.core.errors import SandboxError
from clawrl_gym.envs.swe.rows.instance import Instance

NAMESPACE = "swebench"
SWE_GYM_NAMESPACE = "xingyaoww"
SWE_GYM_REPOSITORIES = frozenset((
    "bokeh/bokeh", "conan-io/conan", "dask/dask", "facebookresearch/hydra", "getmoto/moto",
    "iterative/dvc", "modin-project/modin", "pandas-dev/pandas", "project-monai/monai",
    "pydantic/pydantic", "python/mypy",
))  # fmt: skip
"""In lower case. Its rows have the fields of SWE-bench's; only the repositories tell them apart."""
_FIELDS = ("image", "image_name", "docker_image")
"""Fields with the image: of 5.x and our own; of SWE-smith; of R2E-Gym."""


def image_of(row: Mapping[str, object]) -> str:
    """The image of a row: the one that it names, else by the rule of its data set."""
    for field in _FIELDS:
        image = row.get(field)
        if isinstance(image, str) and image.strip():
            return image.strip()
    instance_id = str(row["instance_id"]).lower()
    if str(row.get("repo", "")).lower() in SWE_GYM_REPOSITORIES:
        return f"{SWE_GYM_NAMESPACE}/sweb.eval.x86_64.{instance_id.replace('__', '_s_')}:latest"
    return f"{NAMESPACE}/sweb.eval.x86_64.{instance_id.replace('__', '_1776_')}:latest"


def ready_image(
    instance: Instance, say: Callable[[str], None] = lambda _: None, timeout_s: float = 3600.0
) -> None:
    """Have the instance's image: it is there, or pulled, or built from its own Dockerfile.

    Raises SandboxError or TaskError.
    """
    if instance.image is None:
        return
    from clawrl_gym.envs.sandbox.docker.engine import engine, engine_call
    from clawrl_gym.envs.sandbox.docker.images import build_image, ensure_image

    try:
        ensure_image(instance.image, say)
    except SandboxError:
        if instance.context is None:
            raise
        say(f"no registry has {instance.image}: building it from {instance.context}")
        built = build_image(Path(instance.context), timeout_s=timeout_s, say=say)
        with engine_call(f"naming the image of instance {instance.id!r}"):
            engine().images.get(built).tag(instance.image)
