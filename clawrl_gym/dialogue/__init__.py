"""Conversations as one graph of messages and turns.

`graph`: which turn a request follows, which next states it brings, which session it belongs to.
`delta`: what a turn adds to the turn before it, which is all that is stored of it.
`prompts`: prompt ids that extend those of the turn before. `merging`: turns whose ids extend each
other as one sequence to train on.
"""
