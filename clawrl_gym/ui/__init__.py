"""Views of a run for people: live while it runs, and afterwards as a page."""
