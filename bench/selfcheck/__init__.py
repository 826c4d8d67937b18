"""Whether this machine measures rightly: the doctor, the first minutes on a GPU, clocks and overhead."""
