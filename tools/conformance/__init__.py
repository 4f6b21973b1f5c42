"""Golden exchange files for trainers; see docs/conformance.md. `exchange.py` needs numpy alone."""
