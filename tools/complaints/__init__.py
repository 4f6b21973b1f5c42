"""The recipe of `clawrl_gym/judge/signals/complaints.npz`."""
