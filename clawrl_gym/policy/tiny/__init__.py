"""The tiny policy: a Qwen3 of under a million parameters, made by our own recipe and shipped.

`python -m clawrl_gym.policy.tiny` makes it again; transformers and vLLM load the folder offline.
It works in a shell, solves small sums for the conversation environment's users, reads and writes
files, calls tools, and mends a line of a repository. Its chat template is a digest: long system
messages, tool schemas and what OpenClaw adds to messages are cut to what it can read. Other models
bring their own template.

`tiny_pages` went on from it to web pages, and forgot how to talk meanwhile; `--pages` makes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

__all__ = ["SHIPPED", "model_dir"]

SHIPPED: Mapping[str, str] = MappingProxyType(
    {"tiny": "tiny_model", "tiny_pages": "tiny_pages_model"}
)
"""Folders of the shipped models, by what `policy.model` calls them."""


def model_dir(name: str = "tiny") -> Path:
    """Folder of a shipped model. Imports nothing heavy."""
    return Path(__file__).resolve().parent.parent / SHIPPED[name]
