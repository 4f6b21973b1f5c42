"""clawrl_gym: the gym where agents learn from what happens next.

Importing this package registers the environment ids (as strings) and does nothing else:
no torch, no ray, no vllm, no file, no network.
"""

from clawrl_gym.envs.registration import register_builtin_envs

__all__ = ["__version__"]
__version__ = "0.1.0"

register_builtin_envs()
