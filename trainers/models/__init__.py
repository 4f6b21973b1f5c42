"""The model that learns: its layers, adapters, optimizer, memory and log-probs."""
