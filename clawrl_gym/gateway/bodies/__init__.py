"""Bodies: read, checked and limited outside the event loop."""
