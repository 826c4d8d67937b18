"""What must be installed: the packages a run needs, and which build of torch suits the driver."""
