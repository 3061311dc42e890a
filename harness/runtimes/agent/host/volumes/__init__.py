"""Where a host's node has its data, if that is no image file of the run's own: a device that was given for it
(device.py); the file system of a service that was there before (given.py)."""
