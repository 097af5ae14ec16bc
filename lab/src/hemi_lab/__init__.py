"""hemi-lab: published storage methodologies as plans, on real and simulated targets."""

from __future__ import annotations

__version__ = "0.2.0"
