"""The engine `vllm`: its processes, what runs inside them, and the client that speaks to them."""
