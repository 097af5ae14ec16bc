"""Advice on drives (docs/lab/advice.md): `hemi advise`'s figures as a page."""
