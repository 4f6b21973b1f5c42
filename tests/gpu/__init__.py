"""What only a CUDA device can show: make gpu. They skip, with the reason, where there is none."""
