"""The API of a cluster whose tasks are divided over several stores.

What is about one task goes to the store that has it (`routing`); a list asks every store for a page, and
merges them (`lists`); a submission is given an id that falls where it should be kept (`placing`).
"""
