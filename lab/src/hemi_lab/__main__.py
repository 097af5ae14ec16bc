"""`python -m hemi_lab` is `hemi-lab`."""

from hemi_lab.cli import main

main()
