"""The composition roots: the only files that know every part. Components never import them."""
