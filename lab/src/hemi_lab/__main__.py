"""Runs `hemi-lab` for `python -m hemi_lab`."""

from hemi_lab.cli import main

main()
