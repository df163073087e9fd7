"""Other clusters, to which tasks that name their region are handed on."""
