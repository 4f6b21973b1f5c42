"""Evaluations: their folders, figures, pages, and what several say of each other."""
