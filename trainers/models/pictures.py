"""The pictures of a sequence as inputs of the model's vision part.

The files are the ones that the policy was shown, read by the model's own image processor with the
same options. Where they belong in the ids, the ids themselves say.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clawrl_gym.core.errors import TrainerError
from clawrl_gym.store.pictures import find_picture

if TYPE_CHECKING:  # who only says where the pictures are needs no torch
    from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class Images:
    """Where the pictures of a run are, and how they are read."""

    folder: str
    processor: dict[str, object] = field(default_factory=dict)
    """Options of the image processor: those that the engine uses."""


class PictureReader:
    """Pictures by their hashes -> keyword arguments of a model's `forward`."""

    def __init__(self, model_dir: str, images: Images, image_id: int) -> None:
        """`image_id` stands for a part of a picture in the ids."""
        from transformers import AutoImageProcessor

        self._images = images
        self._image_id = image_id
        self._processor: Any = AutoImageProcessor.from_pretrained(model_dir)

    def inputs(self, body: nn.Module, ids_1T: Tensor, digests: Sequence[str]) -> dict[str, Tensor]:
        """The vision inputs of one sequence. Raises TrainerError for a picture that is gone."""
        from PIL import Image

        pictures = []
        for digest in digests:
            try:
                with Image.open(find_picture(Path(self._images.folder), digest)) as image:
                    pictures.append(image.convert("RGB"))
            except OSError as error:
                raise TrainerError(f"a sample cannot be read: {error}") from error
        read = self._processor(images=[pictures], return_tensors="pt", **self._images.processor)
        inputs = {name: value.to(ids_1T.device) for name, value in read.items()}
        if "mm_token_type_ids" in inspect.signature(body.forward).parameters:
            inputs["mm_token_type_ids"] = (ids_1T == self._image_id).int()
        return inputs
