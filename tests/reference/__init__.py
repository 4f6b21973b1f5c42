"""Independent statements of what the product computes, to test it against."""
