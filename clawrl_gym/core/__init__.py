"""The words of the project as data, its errors, and what every room may use.

Imports no other room.
"""
