"""The library inside training frameworks: each module needs its own, and nothing else does."""
