"""The recipe of `clawrl_gym/judge/complaints.npz`."""
