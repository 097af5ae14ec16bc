"""Advice on drives (docs/lab/advise.md): `hemi advise`'s figures as a page."""
