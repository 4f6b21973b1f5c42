"""Requests and replies as clients write and read them."""
