"""The views of the admin page, one a file."""
