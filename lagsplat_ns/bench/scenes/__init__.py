"""The scenes themselves, one file per kind of mechanism."""
