"""Files and folders: written whole, locked, packed, copied to other machines."""
