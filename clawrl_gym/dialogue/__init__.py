"""How a conversation hangs together.

Which turn a request follows, what it adds, which next states it brings, which ids extend which.
"""
