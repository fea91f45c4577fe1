"""Jobs on disk: one SQLite database, so finished jobs survive a killed server."""

import fcntl
import json
import sqlite3
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rhumbline.errors import InputError
from rhumbline.serve.jobs import Job, JobState
from rhumbline.serve.latents.log import LatentLog, StoredLatents

SCHEMA = """
CREATE TABLE IF NOT EXISTS jobs (
    id TEXT PRIMARY KEY,
    client TEXT NOT NULL,
    idempotency_key TEXT,
    state TEXT NOT NULL,
    created REAL NOT NULL,
    started REAL,
    ended REAL,
    facts TEXT NOT NULL,
    body TEXT NOT NULL,
    progress TEXT NOT NULL,
    best TEXT,
    curve TEXT NOT NULL,
    batch INTEGER NOT NULL DEFAULT 1,
    error TEXT
);
CREATE TABLE IF NOT EXISTS latents (job TEXT PRIMARY KEY, record BLOB NOT NULL);
CREATE UNIQUE INDEX IF NOT EXISTS by_key ON jobs (client, idempotency_key);
CREATE INDEX IF NOT EXISTS by_time ON jobs (client, created);
CREATE INDEX IF NOT EXISTS by_state ON jobs (state);
"""


class JobStore:
    """All jobs of a service. Every method may be called from any thread."""

    format_version = 2  # user_version of the database

    def __init__(self, folder: Path):
        path = folder / "jobs.sqlite3"
        self.lock = threading.Lock()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self.lock_folder(folder)
            database = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
            self.database = database
            database.execute("PRAGMA journal_mode=WAL")
            database.execute("PRAGMA synchronous=NORMAL")
            row = database.execute("PRAGMA user_version").fetchone()
            version = row[0]
            if version not in (0, self.format_version):
                message = (
                    f"has format {version}, this version of rhumbline reads {self.format_version}"
                )
                raise InputError(f"{path}: {message}; use another folder (--data)")
            database.executescript(SCHEMA)
            database.execute(f"PRAGMA user_version={self.format_version}")
        except (OSError, sqlite3.Error) as error:
            raise InputError(f"{path}: cannot be used ({error}); choose another --data") from error

    def lock_folder(self, folder: Path) -> None:
        """Refuse a second server on the same folder; the lock ends with the process."""
        self.lock_file = (folder / "lock").open("a")
        try:
            fcntl.flock(self.lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.lock_file.close()
            message = "another server uses this folder; stop it, or choose another --data"
            raise InputError(f"{folder}: {message}") from error

    def insert(self, job: Job) -> None:
        """Store a new job."""
        facts: dict[str, Any] = {
            "name": job.name,
            "problem": job.problem,
            "size": job.size,
            "seconds": job.seconds,
        }
        row = (
            job.id,
            job.client,
            job.idempotency_key,
            str(job.state),
            job.created,
            json.dumps(facts),
            job.body_text,
            "{}",  # progress
            "[]",  # curve
        )
        with self.lock:
            self.database.execute(
                "INSERT INTO jobs (id, client, idempotency_key, state, created, facts, body,"
                " progress, curve) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                row,
            )

    def update(self, job: Job) -> None:
        """Store the state and the best plan of a job."""
        row = (
            str(job.state),
            job.started,
            job.ended,
            json.dumps(job.progress),
            json.dumps(job.best) if job.best else None,
            json.dumps(job.curve),
            job.batch_size,
            job.error,
            job.id,
        )
        with self.lock:
            self.database.execute(
                "UPDATE jobs SET state=?, started=?, ended=?, progress=?, best=?, curve=?,"
                " batch=?, error=? WHERE id=?",
                row,
            )

    def save_latents(self, job_id: str, log: LatentLog) -> None:
        """Store the latents of a job that has ended."""
        text = log.to_json()
        record = zlib.compress(text.encode())
        row = (job_id, record)
        with self.lock:
            self.database.execute("INSERT OR REPLACE INTO latents VALUES (?, ?)", row)

    def find_latents(self, job_id: str) -> StoredLatents | None:
        """Return the stored latents of a job."""
        with self.lock:
            rows = self.database.execute("SELECT record FROM latents WHERE job=?", (job_id,))
            row = rows.fetchone()
        if row is None:
            return None
        text = zlib.decompress(row[0]).decode()
        return StoredLatents.from_json(text)

    def find(self, job_id: str) -> Job | None:
        """Return a stored job."""
        rows = self.select("WHERE id=?", job_id)
        return next(rows, None)

    def find_by_key(self, client: str, key: str) -> Job | None:
        """Return the job that a client has sent with an idempotency key."""
        rows = self.select("WHERE client=? AND idempotency_key=?", client, key)
        return next(rows, None)

    def latest(self, client: str, limit: int) -> list[Job]:
        """Return the latest jobs of a client, newest first."""
        rows = self.select("WHERE client=? ORDER BY created DESC LIMIT ?", client, limit)
        return list(rows)

    def unfinished(self) -> list[Job]:
        """Return the jobs that a server left behind, oldest first."""
        states = JobState.QUEUED, JobState.RUNNING
        return list(self.select("WHERE state IN (?, ?) ORDER BY created", *map(str, states)))

    def count_by_state(self) -> dict[str, int]:
        """Return how many jobs are in each state."""
        with self.lock:
            rows = self.database.execute("SELECT state, COUNT(*) FROM jobs GROUP BY state")
            return dict(rows.fetchall())

    def delete_ended_before(self, seconds: float) -> int:
        """Delete jobs that ended before a time; return how many."""
        with self.lock:
            count = self.database.execute("DELETE FROM jobs WHERE ended < ?", (seconds,)).rowcount
            if count:
                self.database.execute("DELETE FROM latents WHERE job NOT IN (SELECT id FROM jobs)")
            return count

    def select(self, condition: str, *values: Any) -> Iterator[Job]:
        """Yield the jobs of a query."""
        with self.lock:
            rows = self.database.execute(
                "SELECT id, client, idempotency_key, state, created, started, ended, facts, body,"
                f" progress, best, curve, batch, error FROM jobs {condition}",
                values,
            ).fetchall()
        yield from map(job_of_row, rows)

    def close(self) -> None:
        """Close the database."""
        with self.lock:
            self.database.close()
            self.lock_file.close()


def job_of_row(row: tuple[Any, ...]) -> Job:
    """Return the job of a row."""
    job_id, client, key, state, created, started, ended, *texts = row
    facts, body, progress, best, curve, batch, error = texts
    known = json.loads(facts)
    return Job(
        id=job_id,
        client=client,
        idempotency_key=key,
        state=JobState(state),
        created=created,
        started=started,
        ended=ended,
        name=known["name"],
        problem=known["problem"],
        size=known["size"],
        seconds=known["seconds"],
        body_text=body,
        progress=json.loads(progress),
        best=json.loads(best) if best else None,
        curve=[(seconds, cost) for seconds, cost in json.loads(curve)],
        batch_size=batch,
        error=error,
        batch_key=(),
    )
