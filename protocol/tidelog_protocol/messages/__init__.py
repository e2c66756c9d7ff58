"""Message tables, one file per family of APIs."""
