"""Several things to mend in one made-up repository, with one request."""
