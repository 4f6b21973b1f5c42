"""The formulas again, token by token in float64: computes what an exchange file expects.

Written from the papers that each case names; it shares no code with any trainer. Gradients are
derived by hand, and a test compares them with finite differences of the loss.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tools.conformance.exchange import Case, Sequence, Table, logprobs

SAME = 1e-8
"""Rewards of a group that differ by no more are equal."""


@dataclass(slots=True)
class Token:
    """An id that is trained on."""

    sequence: int
    place: int
    advantage: float
    current: float
    proximal: float
    behaviour: float
    reference: float
    ratio: float = 1.0
    importance: float = 1.0
    gradient: float = 0.0
    """Gradient of the loss, by the current log-prob."""


def expected_of(case: Case) -> dict[str, Any]:
    """Everything that an exchange file expects."""
    advantages = advantages_of(case)
    tokens = _tokens(case, advantages)
    _weigh(case, tokens)
    loss = _loss(case, tokens)
    expected: dict[str, Any] = {
        "advantages": advantages,
        "trained": _by_place(case, tokens, lambda token: True, False),
        "ratios": _by_place(case, tokens, lambda token: token.ratio, None),
        "importance": _by_place(case, tokens, lambda token: token.importance, None),
        "loss": loss,
        "logprob_gradient": _by_place(case, tokens, lambda token: token.gradient, None),
        "gradient_norm": float(np.linalg.norm(table_gradient(case, tokens))),
    }
    if any(name.startswith("behaviour") for name in case.weights):
        expected["behaviour_logprobs"] = [recorded(case, one) for one in case.sequences]
    return expected


def advantages_of(case: Case) -> list[float | None]:
    """(r - mean) / (std + epsilon) by episode, within the group's episodes that have a reward."""
    settings = case.settings["advantage"]
    groups: dict[int, list[float]] = {}
    for episode in case.episodes:
        if episode.reward is not None:
            groups.setdefault(episode.group, []).append(episode.reward)
    values: list[float | None] = []
    for episode in case.episodes:
        rewards = groups.get(episode.group, [])
        if episode.reward is None or _is_dropped(rewards, case.settings["constant_groups"]):
            values.append(None)
            continue
        mean = math.fsum(rewards) / len(rewards)
        advantage = episode.reward - mean
        if settings["baseline"] == "leave_one_out":
            advantage *= len(rewards) / (len(rewards) - 1)
        if settings["std"] == "sample":
            squares = math.fsum((reward - mean) ** 2 for reward in rewards)
            advantage /= math.sqrt(squares / (len(rewards) - 1)) + settings["epsilon"]
        values.append(advantage)
    return values


def _is_dropped(rewards: list[float], constant_groups: str) -> bool:
    return constant_groups == "drop" and max(rewards) - min(rewards) <= SAME


def _tokens(case: Case, advantages: list[float | None]) -> list[Token]:
    tokens = []
    for number, sequence in enumerate(case.sequences):
        advantage = advantages[sequence.episode]
        if advantage is None:
            continue
        current = logprobs(case.weights["current"], sequence.ids, sequence.allowed)
        others = [
            logprobs(
                case.weights.get(name, case.weights["current"]), sequence.ids, sequence.allowed
            )
            for name in ("proximal", "reference")
        ]
        for place, behaviour in enumerate(sequence.behaviour_logprobs):
            if sequence.sampled[place] and behaviour is not None:
                streams = current[place], others[0][place], behaviour, others[1][place]
                tokens.append(Token(number, place, advantage, *streams))
    return tokens


def _weigh(case: Case, tokens: list[Token]) -> None:
    """Ratios, and weights for what another policy sampled."""
    settings = case.settings
    for token in tokens:
        fellows = [other for other in tokens if other.sequence == token.sequence]
        if settings["surrogate"] == "gspo":
            moved = math.fsum(other.current - other.proximal for other in fellows)
            token.ratio = math.exp(moved / len(fellows))
        elif settings["surrogate"] == "dppo":
            token.ratio = math.exp(token.current - token.behaviour)
        else:
            token.ratio = math.exp(token.current - token.proximal)
        own = math.exp(token.proximal - token.behaviour)
        apart = math.fsum(other.proximal - other.behaviour for other in fellows)
        whole = math.exp(apart / len(fellows))
        cap = settings["importance_cap"]
        token.importance = 1.0 if cap is None else min(own, cap)
        keep = settings["keep"]
        if keep is not None:
            inside = keep["token"][0] <= own <= keep["token"][1]
            inside = inside and keep["sequence"][0] <= whole <= keep["sequence"][1]
            token.importance = token.importance if inside else 0.0


def _loss(case: Case, tokens: list[Token]) -> float:
    """Sets each token's gradient too."""
    settings = case.settings
    lengths: dict[int, int] = {}
    for token in tokens:
        lengths[token.sequence] = lengths.get(token.sequence, 0) + 1
    total = 0.0
    for token in tokens:
        share = {
            "token_mean": 1 / len(tokens),
            "sequence_mean": 1 / (len(lengths) * lengths[token.sequence]),
            "constant": 1 / (len(lengths) * settings["constant_length"]),
        }[settings["reduction"]]
        value, slope = _surrogate(settings, token)
        value, slope = value * token.importance, slope * token.importance
        if settings["kl"]:
            away = token.reference - token.current
            value += settings["kl"] * (math.exp(away) - 1 - away)
            slope += settings["kl"] * (1 - math.exp(away))
        total += share * value
        token.gradient = share * slope
    return total


def _surrogate(settings: dict[str, Any], token: Token) -> tuple[float, float]:
    """A token's term and its derivative by the current log-prob.

    The ratio of a whole sequence depends on each of its n log-probs by 1/n, and stands in n terms:
    together the same derivative as if each term depended on its own alone.
    """
    if settings["surrogate"] == "sapo":
        tau = settings["tau_pos"] if token.advantage > 0 else settings["tau_neg"]
        gate = 1 / (1 + math.exp(-tau * (token.ratio - 1)))
        slope = 4 * gate * (1 - gate) * token.ratio
        return -4 / tau * gate * token.advantage, -slope * token.advantage
    if settings["surrogate"] == "dppo":
        if _leaves_trust_region(settings, token):
            return 0.0, 0.0
        cap = settings["ratio_cap"]
        weight = token.ratio if cap is None else min(token.ratio, cap)
        return -weight * token.advantage, -weight * token.advantage
    low, high = 1 - settings["clip_low"], 1 + settings["clip_high"]
    cut = min(max(token.ratio, low), high)
    if settings["surrogate"] == "cispo":
        return -cut * token.advantage * token.current, -cut * token.advantage
    free, bound = -token.ratio * token.advantage, -cut * token.advantage
    return (bound, 0.0) if bound > free else (free, free)


def _leaves_trust_region(settings: dict[str, Any], token: Token) -> bool:
    """Whether it is further away than allowed and its term would push it further still."""
    now, then = math.exp(token.current), math.exp(token.behaviour)
    if settings["divergence"] == "tv":
        apart = abs(then - now)
    else:
        apart = then * math.log(then / now) + (1 - then) * math.log((1 - then) / (1 - now))
    same_way = (token.advantage > 0) == (now > then) and token.advantage != 0
    return same_way and apart > settings["threshold"]


def table_gradient(case: Case, tokens: list[Token]) -> Table:
    """Gradient of the loss by the current table: a log-softmax's, row by row."""
    table = case.weights["current"]
    gradient = np.zeros_like(table)
    for token in tokens:
        sequence = case.sequences[token.sequence]
        before, own = sequence.ids[token.place - 1], sequence.ids[token.place]
        allowed = sequence.allowed[token.place] if sequence.allowed else None
        among = list(range(len(table))) if allowed is None else allowed
        chances = np.exp(table[before, among] - table[before, among].max())
        gradient[before, among] -= token.gradient * chances / chances.sum()
        gradient[before, own] += token.gradient
    return gradient


def recorded(case: Case, sequence: Sequence) -> list[float | None]:
    """Log-probs of the distribution that the behaviour table and its filters sample from."""
    values: list[float | None] = []
    for place, sampled in enumerate(sequence.sampled):
        if not sampled:
            values.append(None)
            continue
        name = f"behaviour/{sequence.versions[place]}"
        table = case.weights[name]
        row = table[sequence.ids[place - 1]]
        kept = filtered(row, sequence.sampling)
        allowed: list[list[int] | None] = [None] * len(sequence.ids)
        allowed[place] = kept
        values.append(logprobs(table, sequence.ids, allowed)[place])
    return values


def filtered(logits: Table, sampling: dict[str, float]) -> list[int]:
    """Ids that the filters leave, the most likely first.

    `top_k`: so many; `top_p`: the fewest whose probabilities reach it; `min_p`: those with at least
    this share of the largest probability.
    """
    order = np.argsort(-logits, kind="stable")
    chances = np.exp(logits - logits.max())
    chances /= chances.sum()
    count = len(order)
    if "top_k" in sampling:
        count = min(count, int(sampling["top_k"]))
    if "top_p" in sampling:
        reached = np.cumsum(chances[order]) - chances[order] < sampling["top_p"]
        count = min(count, int(reached.sum()))
    if "min_p" in sampling:
        count = min(count, int((chances >= sampling["min_p"] * chances.max()).sum()))
    return [int(one) for one in order[:count]]


def _by_place(case: Case, tokens: list[Token], value: Any, otherwise: Any) -> list[list[Any]]:
    """A value of each token at its place in its sequence."""
    rows = [[otherwise] * len(sequence.ids) for sequence in case.sequences]
    for token in tokens:
        rows[token.sequence][token.place] = value(token)
    return rows
