"""What makes `clawrl_gym/judge/complaints.npz`."""
