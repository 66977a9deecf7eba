"""Hypothesis in the suite is deterministic; `HYPOTHESIS_PROFILE=search` looks for new examples."""

import os

from hypothesis import settings

settings.register_profile("suite", derandomize=True, deadline=None)
settings.register_profile("search", deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "suite"))
