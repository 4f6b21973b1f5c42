"""The tiny policy: a Qwen3 of under a million parameters, made by our own seeded recipe and shipped.

`python -m clawrl_gym.policy.tiny` makes it again; the folder loads offline in transformers and vLLM.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["model_dir"]


def model_dir() -> Path:
    """Folder of the shipped model. Imports nothing heavy."""
    return Path(__file__).resolve().parent.parent / "tiny_model"
