"""Starting ranks and batch jobs."""
