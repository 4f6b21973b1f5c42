"""Demands of an environment on the model that acts in it: tools, pictures, a system message.

A model that never sees a tool would play on and solve nothing: that is reported before a run
begins.
"""

from __future__ import annotations

from collections.abc import Iterator

from clawrl_gym.config import AgentConfig, EnvConfig, PolicyConfig
from clawrl_gym.inference.engine_classes import engine_class
from clawrl_gym.inference.models.abilities import Abilities
from clawrl_gym.rollout.collection.worker import build_agent


def demands(env: EnvConfig, agent: AgentConfig) -> Iterator[str]:
    """For people: what the model must be able to do, a line each."""
    if env.tool_use != "none":
        some = "in some tasks " if env.tool_use == "some" else ""
        if _is_in_words(env, agent):
            yield f"{some}calls of tools that the system message describes (agent.protocol=text)"
        else:
            yield f"{some}calls of tools that the chat template shows (agent.protocol=native)"
    if env.shows_pictures:
        yield "pictures (env.observation)"
    if _has_system(env, agent):
        yield "a system message"


def unmet(
    policy: PolicyConfig,
    env: EnvConfig,
    agent: AgentConfig,
    able: Abilities | None,
    key: str = "",
) -> Iterator[str]:
    """Demands that the model does not meet, with what to do instead; none for a model that is not
    here.

    `key`: prefix of the environment's keys on the command line.
    """
    yield from _unmet_by_engine(policy, env, agent, key)
    if able is None:
        return
    model = f"policy.model={policy.model!r}"
    if env.shows_pictures and not able.pictures:
        yield (
            f"got env={env.type} that shows pictures ({key}env.observation) and {model}, which "
            f"sees none: take {key}env.observation=tree, or a model that sees, such as "
            "policy=qwen3_vl_4b"
        )
    if agent.type != "auto":  # one of your own may say tools as it likes
        return
    in_words = _is_in_words(env, agent)
    if env.tool_use == "all" and not in_words and not able.shows_tools:
        yield (
            f"got env={env.type}, whose tasks are done with tools, and {model}, whose chat "
            f"template shows it none: take {key}agent.protocol=text, which describes them in the "
            "system message, or a model whose template shows tools"
        )
    elif env.tool_use == "all" and not in_words and policy.tool_parser is None:
        yield (
            f"got env={env.type}, whose tasks are done with tools, and policy.tool_parser=null, by "
            f"which no call is read: name the engine's parser of this model, or take "
            f"{key}agent.protocol=text"
        )
    if _has_system(env, agent) and not able.takes_system:
        yield (
            f"got env={env.type}, whose agent writes a system message, and {model}, whose chat "
            f"template takes none: take {key}agent.system='' (and say what is to be done in the "
            "tasks themselves), or another model"
        )


def _unmet_by_engine(
    policy: PolicyConfig, env: EnvConfig, agent: AgentConfig, key: str
) -> Iterator[str]:
    """Demands that the engine does not meet, whatever the model can do."""
    engine = engine_class(policy).capabilities
    if env.shows_pictures and not engine.pictures:
        yield (
            f"got env={env.type} that shows pictures ({key}env.observation) and policy.engine="
            f"{policy.engine}, which has no pictures (it serves no model that sees): take "
            f"{key}env.observation=tree, or policy.engine=vllm"
        )
    in_calls = env.tool_use == "all" and not _is_in_words(env, agent)
    if agent.type == "auto" and in_calls and not engine.tools:
        yield (
            f"got env={env.type}, whose tasks are done with tools, and policy.engine="
            f"{policy.engine}, which has no tools (it reads no tool calls): take "
            f"{key}agent.protocol=text, which has them in the text, or policy.engine=vllm"
        )


def unseen_tools(env: EnvConfig, able: Abilities | None) -> Iterator[str]:
    """Notes, which are not errors, on an environment with tools in some of its tasks."""
    if env.tool_use == "some" and able is not None and not able.shows_tools:
        yield (
            f"env={env.type} has tools in some tasks, and the chat template shows the model none "
            "of them: it acts there without"
        )


def _is_in_words(env: EnvConfig, agent: AgentConfig) -> bool:
    """Whether the agent describes tools in the system message; that of conversations never does."""
    return agent.protocol == "text" and env.tool_use == "all"


def _has_system(env: EnvConfig, agent: AgentConfig) -> bool:
    """Whether the first request has a system message by the agent of ours."""
    if agent.type != "auto":
        return False
    if _is_in_words(env, agent):
        return True
    return build_agent(agent, env).messages(["x"], [])[0]["role"] == "system"
