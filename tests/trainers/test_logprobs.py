"""Log-probs made in pieces have the value and the gradient of those from whole logits."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from clawrl_gym.trainers.models.logprobs import MAX_LOGITS, Head, logprobs_of

M, H, V, K = 23, 16, 50, 4


def drawn(*shape: int, seed: int = 0) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=draw).requires_grad_()


def plain(
    hidden_MH: Tensor, weight_VH: Tensor, bias_V: Tensor | None, ids_MK: Tensor, temperature: float
) -> tuple[Tensor, Tensor]:
    logits_MV = torch.nn.functional.linear(hidden_MH, weight_VH, bias_V).float() / temperature
    entropies_M = torch.distributions.Categorical(logits=logits_MV).entropy()
    return logits_MV.log_softmax(-1).gather(-1, ids_MK), entropies_M


@pytest.mark.parametrize("limit", [MAX_LOGITS, 7 * V, V - 1], ids=["whole", "pieces", "one by one"])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_values_and_gradients_are_those_of_whole_logits(
    limit: int, biased: bool, frozen: bool, temperature: float
) -> None:
    ids_MK = torch.randint(0, V, (M, K), generator=torch.Generator().manual_seed(3))
    ids_MK[0] = ids_MK[0, 0]  # one token several times: its gradients add up
    weights_MK = drawn(M, K, seed=4).detach()
    gradients, values = [], []
    for whole in (True, False):
        hidden_MH, weight_VH = drawn(M, H), drawn(V, H, seed=1).requires_grad_(not frozen)
        bias_V = drawn(V, seed=2).requires_grad_(not frozen) if biased else None
        if whole:
            logprobs_MK, entropies_M = plain(hidden_MH, weight_VH, bias_V, ids_MK, temperature)
        else:
            head = Head(weight_VH, bias_V, temperature, limit)
            logprobs_MK, entropies_M = logprobs_of(head, hidden_MH, ids_MK)
            assert not entropies_M.requires_grad
        (logprobs_MK * weights_MK).sum().backward()
        values.append((logprobs_MK.detach(), entropies_M.detach()))
        gradients.append([t.grad for t in (hidden_MH, weight_VH, bias_V) if t is not None])
    torch.testing.assert_close(values[1], values[0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-4, atol=1e-5)
    assert (gradients[1][1] is None) == frozen


def test_weights_of_half_the_size_give_float32_and_nearly_the_same_gradient() -> None:
    hidden_MH, weight_VH = drawn(M, H), drawn(V, H, seed=1).detach()
    ids_M1 = torch.arange(M)[:, None]
    logprobs_M1, _ = plain(hidden_MH, weight_VH, None, ids_M1, 1.0)
    logprobs_M1.sum().backward()
    half_MH = hidden_MH.detach().bfloat16().requires_grad_()
    got_M1, entropies_M = logprobs_of(Head(weight_VH.bfloat16(), None, 1.0), half_MH, ids_M1)
    got_M1.sum().backward()
    assert got_M1.dtype == entropies_M.dtype == torch.float32
    torch.testing.assert_close(got_M1.detach(), logprobs_M1.detach(), rtol=0.05, atol=0.1)
    assert half_MH.grad is not None
    torch.testing.assert_close(half_MH.grad.float(), hidden_MH.grad, rtol=0.1, atol=0.1)


def test_without_gradient_nothing_is_kept() -> None:
    head = Head(drawn(V, H), None, 1.0)
    with torch.no_grad():
        logprobs_M1, _ = logprobs_of(head, drawn(M, H, seed=1), torch.zeros(M, 1, dtype=torch.long))
    assert logprobs_M1.grad_fn is None


@pytest.mark.parametrize(("positions", "limit"), [(0, 10), (1, 10), (7, 10), (23, 3 * V)])
def test_pieces_are_all_positions_in_turn(positions: int, limit: int) -> None:
    pieces = list(Head(drawn(V, H), None, 1.0, limit).pieces(positions))
    lengths = [len(range(positions)[piece]) for piece in pieces]
    assert sum(lengths) == positions
    assert all(length * V <= max(limit, V) for length in lengths)
    assert [p.start for p in pieces] == [sum(lengths[:n]) for n in range(len(lengths))]


@pytest.mark.parametrize("limit", [MAX_LOGITS, 7 * V], ids=["whole", "pieces"])
@pytest.mark.parametrize("frozen", [False, True])
def test_each_position_may_have_a_temperature_of_its_own(limit: int, frozen: bool) -> None:
    temperatures_M1 = torch.linspace(0.2, 2.0, M)[:, None]
    ids_MK = torch.randint(0, V, (M, K), generator=torch.Generator().manual_seed(3))
    weights_MK = drawn(M, K, seed=4).detach()
    gradients, values = [], []
    for whole in (True, False):
        hidden_MH, weight_VH = drawn(M, H), drawn(V, H, seed=1).requires_grad_(not frozen)
        bias_V = drawn(V, seed=2).requires_grad_(not frozen)
        if whole:
            logits_MV = torch.nn.functional.linear(hidden_MH, weight_VH, bias_V) / temperatures_M1
            logprobs_MK = logits_MV.log_softmax(-1).gather(-1, ids_MK)
        else:
            head = Head(weight_VH, bias_V, temperatures_M1, limit)
            logprobs_MK, _ = logprobs_of(head, hidden_MH, ids_MK)
        (logprobs_MK * weights_MK).sum().backward()
        values.append(logprobs_MK.detach())
        gradients.append([t.grad for t in (hidden_MH, weight_VH, bias_V)])
    torch.testing.assert_close(values[1], values[0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-4, atol=1e-4)
