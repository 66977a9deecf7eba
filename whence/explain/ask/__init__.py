"""Questions asked of derivations: what suffices, what is critical, how much it can stand, how likely it is."""
