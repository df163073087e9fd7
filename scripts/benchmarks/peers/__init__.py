"""Other schedulers beside Duly: the same work on the same servers, in turns.

peer.py        the interface that an adapter fills    registry.py   every adapter by name
duly_peer.py   Duly behind it                         process_peer.py   the others: processes
programs/      what runs in a peer's own environment, one module for each
notes.py       how handlers note when they started    work.py   the scenarios for peers
compare.py     the turns
"""
