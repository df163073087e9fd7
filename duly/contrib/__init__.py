"""Handlers for common work; none is there unless a worker registers it.

shell   run a command line, as cron does
"""
