"""A second opinion on the lock: a universe and a checker that share no code with the simulator."""
