"""A teacher that is another model must mean the same by each token id."""

from __future__ import annotations

from clawrl_gym.core.errors import TrainerError


def check_vocabulary(teacher: str, policy: str) -> None:
    """Raises TrainerError unless both models, by folder or Hugging Face id, share all tokens."""
    theirs, ours = _tokens(teacher), _tokens(policy)
    different = next(
        (i for i in sorted(theirs.keys() | ours.keys()) if theirs.get(i) != ours.get(i)), None
    )
    if different is not None:
        raise TrainerError(
            f"the teacher {teacher!r} has another vocabulary: {len(theirs)} tokens, the policy "
            f"{len(ours)}; token {different} is {theirs.get(different)!r}, expected "
            f"{ours.get(different)!r}: take a model of the policy's family"
        )


def _tokens(model: str) -> dict[int, str]:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    return {index: token for token, index in tokenizer.get_vocab().items()}
