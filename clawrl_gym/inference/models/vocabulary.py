"""Whether two models share all tokens, so that one can be asked about what the other sampled."""

from __future__ import annotations

from pathlib import Path

from clawrl_gym.core.errors import ConfigError


def check_vocabulary(teacher: str, policy: str) -> None:
    """Raise ConfigError unless both models, by folder or Hugging Face id, share all tokens."""
    teacher_tokens, policy_tokens = _tokens(teacher), _tokens(policy)
    different = next(
        (
            i
            for i in sorted(teacher_tokens.keys() | policy_tokens.keys())
            if teacher_tokens.get(i) != policy_tokens.get(i)
        ),
        None,
    )
    if different is not None:
        raise ConfigError(
            f"the teacher {teacher!r} has another vocabulary: {len(teacher_tokens)} tokens, the "
            f"policy {len(policy_tokens)}; token {different} is "
            f"{teacher_tokens.get(different)!r}, expected {policy_tokens.get(different)!r}: take "
            "a model of the policy's family"
        )


def _tokens(model: str) -> dict[int, str]:
    """By id. Of a folder with a fast tokenizer, which nearly all have, without transformers."""
    file = Path(model) / "tokenizer.json"
    if file.exists():
        from tokenizers import Tokenizer

        tokens: dict[str, int] = Tokenizer.from_file(str(file)).get_vocab()
    else:
        from transformers import AutoTokenizer

        tokens = AutoTokenizer.from_pretrained(model).get_vocab()
    return {index: token for token, index in tokens.items()}
