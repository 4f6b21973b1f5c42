"""The shipped losses, a file each: a function and the model of its options."""
