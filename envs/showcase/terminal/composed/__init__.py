"""Tasks that chain skills: several things to do with one request, with things to find out first,
obstacles and decoys. The folder's state is modelled in Python, so that what an agent should have
left is known without running anything."""
