"""What makes things of this repository; not part of the package."""
