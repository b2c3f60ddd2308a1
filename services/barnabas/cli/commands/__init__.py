"""One file a command: its flags, and what they ask of the cluster."""
