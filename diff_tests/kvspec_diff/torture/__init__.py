"""Every harm that can be done to a store: loss of power, SIGKILL, damage, a full disk. `kvspec store torture`."""
