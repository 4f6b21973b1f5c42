"""Replies of the policy that serves to the canaries' prompts, as token ids."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from hashlib import sha256
from pathlib import Path

from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.types import ChatBody, Message
from clawrl_gym.inference.generation import Sampling
from clawrl_gym.inference.interface import Policies
from clawrl_gym.trainers.updates.canaries import PROMPTS, Exchange

_ASKER = "canaries"
"""Name of the asker for the fleet: not a session."""
_LONGEST_REPLY = 64
"""Tokens."""


class CanaryPrompts:
    """Prompts of a file, or the shipped ones; what has no reply of its own gets the policy's."""

    def __init__(
        self, policies: Policies, version: Callable[[], int], file: Path | None = None
    ) -> None:
        """Read the prompts. Raises ConfigError for a file that cannot be used."""
        self._policies = policies
        self._version = version
        self._bodies = (
            [(ChatBody(messages=[_user(text)]), None) for text in PROMPTS]
            if file is None
            else read_canaries(file)
        )

    async def __call__(self, known: Collection[str]) -> list[Exchange]:
        """Those whose keys are not known. Raises PolicyError where the policy does not answer."""
        missing = [one for one in self._bodies if _key(*one) not in known]
        return [await self._exchange(body, reply) for body, reply in missing]

    async def _exchange(self, body: ChatBody, reply: str | None) -> Exchange:
        policy = self._policies.of(_ASKER)
        if reply is not None:
            prompt_ids, ids = await policy.render(body), await policy.tokenize(reply)
            return Exchange(_key(body, reply), prompt_ids, ids)
        greedy = Sampling(temperature=0.0, top_p=1.0, max_tokens=_LONGEST_REPLY)
        answer = await policy.generate_chat(body, greedy, version=self._version())
        assert answer.whole is not None  # nothing had to come before
        generation, _ = answer.whole
        return Exchange(_key(body, reply), answer.prompt_ids_T, generation.sampled_ids_T)


def read_canaries(file: Path) -> list[tuple[ChatBody, str | None]]:
    """Prompts of a file, one JSON object a line: `messages`, and a `reply` that is good.

    Raises ConfigError naming the line.
    """
    try:
        lines = file.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"learner.guards.canary_file: cannot read {file}: {error}") from error
    bodies = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            fields = json.loads(line)
            messages, reply = fields["messages"], fields.get("reply")
            if not messages or not all(isinstance(one["role"], str) for one in messages):
                raise ValueError("no messages")
            if reply is not None and not (isinstance(reply, str) and reply):
                raise ValueError("reply is no text")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(
                f"learner.guards.canary_file: got {line[:80]!r} in line {number} of {file} "
                f'({error}), expected {{"messages": [{{"role": "user", "content": "..."}}], '
                '"reply": "..."}, the reply optional'
            ) from error
        bodies.append((ChatBody(messages=messages), reply))
    if not bodies:
        raise ConfigError(f"learner.guards.canary_file: got no line in {file}, expected one")
    return bodies


def _user(text: str) -> Message:
    return {"role": "user", "content": text}


def _key(body: ChatBody, reply: str | None) -> str:
    text = json.dumps([body["messages"], reply], sort_keys=True)
    return sha256(text.encode()).hexdigest()[:16]
