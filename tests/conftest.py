"""Settings of every test: Hypothesis without deadlines, pictures without a screen."""

import os

import hypothesis

os.environ.setdefault("MPLBACKEND", "Agg")

# The first call of a kernel compiles it, so a deadline would measure the compiler.
hypothesis.settings.register_profile("aicore", deadline=None)
hypothesis.settings.register_profile("aicore-ci", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("aicore-ci" if os.environ.get("CI") else "aicore")
