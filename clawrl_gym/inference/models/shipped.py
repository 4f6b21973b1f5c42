"""The models that come with the package. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

SHIPPED: Mapping[str, str] = MappingProxyType(
    {"tiny": "tiny_model", "tiny_skills": "tiny_skills_model"}
)
"""Folders of the models that come with the package, by what `policy.model` calls them: Qwen3 of
under a million parameters, made by the recipes in `tools/tiny_policy`: `tiny` for all environments,
`tiny_skills` for what single skills of the terminal, of an office and of web pages compose to, and
for conversations."""


def shipped_dir(name: str = "tiny") -> Path:
    """Folder of a shipped model."""
    return Path(__file__).resolve().parent / SHIPPED[name]
