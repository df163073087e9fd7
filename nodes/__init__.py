"""What runs as a process, and its edges.

settings     every setting, checked whole
node         the tree of one node
lifecycle    running a tree as a process: event loop, signals, exit code
logs         structured or plain log lines
server       the HTTP server, as a part of the tree
api/         the HTTP API
worker/      the worker SDK
client/      the client SDK
exact_json   JSON with numbers exact, for both SDKs
embedded/    PostgreSQL and Valkey from Python wheels
cli/         the duly command
"""
