"""What users do within transactions of their own, in the database in which Duly keeps its tasks.

submitting.py   tasks that exist exactly if the transaction commits
drivers.py      connections of asyncpg, psycopg and SQLAlchemy
"""
