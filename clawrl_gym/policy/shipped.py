"""The models that come with the package: `tiny`, and `tiny_pages` for web pages.

Qwen3 of under a million parameters, made by the recipe in `tools/tiny_policy`; transformers and
vLLM load the folders offline.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

SHIPPED: Mapping[str, str] = MappingProxyType(
    {"tiny": "tiny_model", "tiny_pages": "tiny_pages_model"}
)
"""Folders of the shipped models, by what `policy.model` calls them."""


def model_dir(name: str = "tiny") -> Path:
    """Folder of a shipped model. Imports nothing heavy."""
    return Path(__file__).resolve().parent / SHIPPED[name]
