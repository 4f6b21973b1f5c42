"""A small shop: users, orders and products as JSON, tools that change them, and customers.

`make` is the factory of its toolset, `toolset.py`.
"""

from clawrl_gym.envs.showcase.toolcall.shop.toolset import make

__all__ = ["make"]
