"""An update: minibatches, teacher, checks before it serves, checkpoint."""
