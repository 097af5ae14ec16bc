"""fio: closed loops on files, devices and NBD exports."""
