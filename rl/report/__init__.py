"""Reports of a run, several or a comparison from their directories alone; computes nothing new about a policy."""
