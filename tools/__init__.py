"""Programs that make things of this repository; not part of the package."""
