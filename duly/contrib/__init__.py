"""Handlers for common work, none of which is there unless a worker registers it; and a codec.

http    send an HTTP request; also a worker of its own
shell   run a command line, as cron does
group   a process that ends with all of its group
output  the end of what a process writes
aes_siv a codec that encrypts payloads
"""
