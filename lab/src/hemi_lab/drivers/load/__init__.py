"""hemi load: loads with times of their own on files, devices and NBD exports."""
