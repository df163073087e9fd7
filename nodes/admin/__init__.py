"""The admin page: HTML, CSS and ES modules, sent to browsers as they are."""
