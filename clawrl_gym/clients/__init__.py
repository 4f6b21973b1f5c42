"""Programs that people talk to a policy with: how each is pointed at a gateway, and back."""
