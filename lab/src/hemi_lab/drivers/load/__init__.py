"""hemi load: open loops on files, devices and NBD exports."""
