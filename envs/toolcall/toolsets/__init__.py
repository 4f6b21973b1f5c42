"""Tools that tasks may ask for, each set in a file: schemas, calls carried out, state."""
