"""The service behind `rhumb serve`: jobs over HTTP, solved in batches by worker processes.

`service.py` owns all jobs and decides what runs next, `worker.py` solves a batch in a process of
its own, `store.py` keeps jobs on disk, and `http/` handles requests. Only `http/` uses HTTP.
"""
