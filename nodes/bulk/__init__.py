"""Actions on all tasks that a filter finds."""
