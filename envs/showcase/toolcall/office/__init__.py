"""An office as JSON: people, rooms, meetings, tickets, items, orders, and tools that change them.

`make` is the factory of its toolset, `toolset.py`.
"""

from clawrl_gym.envs.showcase.toolcall.office.toolset import make

__all__ = ["make"]
