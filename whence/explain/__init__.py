"""Why a row is there, what would change it, and how much it can stand: questions asked of derivations (`graph.py`)."""
