"""Mixed into vLLM's worker (`--worker-extension-cls`): a reload that reaches every layer.

vLLM's CPU build computes from packed copies of the weights. Its own reload packs anew only the
layers that the checkpoint names, which leaves an output head that is tied to the embedding with
the old weights.
"""

from __future__ import annotations

from clawrl_gym.inference.vllm.objects import Worker


class Reload:
    """vLLM's worker is its other base class; the names must not clash with the worker's."""

    def reload_from_disk(self: Worker) -> None:
        """Read the weights of the served folder again, tied ones included."""
        from vllm.model_executor.layers.vocab_parallel_embedding import VocabParallelEmbedding

        self.reload_weights()
        for layer in self.get_model().modules():
            if isinstance(layer, VocabParallelEmbedding):
                layer.quant_method.process_weights_after_loading(layer)
