"""Starting and stopping the servers of the tier."""
