"""Where replicas lie, where they should, and what is not as it should be."""
