"""Reports: runs as one self-contained HTML file."""
