"""Job-shop files as JSPLIB and Taillard write them, and files of schedules.

Both begin with the numbers of jobs and machines. Then the standard form has a row of pairs
(machine, duration) for each job; Taillard's has a matrix of times and one of machines, with the
words 'Times' and 'Machines' above them or without. Rows may differ in length, but not those of
matrices without titles. Behind '#' there are comments.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rhumbline.errors import Infeasible, InputError
from rhumbline.formats.best_known import with_best_makespan
from rhumbline.formats.safe_io import write_text
from rhumbline.formats.sections import Row, Sections, text_lines
from rhumbline.problems.jssp import JSSPInstance, Schedule
from rhumbline.problems.jssp.instance import MAX_HORIZON, MAX_JOBS, MAX_MACHINES, first_machine

COMMENT = "#"
FIRST_MACHINE = re.compile(
    r"first machine\s*[:=]?\s*([01])\b", re.IGNORECASE
)  # in a comment; settles what it must
NUMBER_WORD = re.compile(
    r"[+-]?\d+(\.\d*)?"
)  # also such as no shop may have: it is for `read_jsp` to say so
TAILLARD_TITLE = re.compile(
    r"nb\.? of jobs\b", re.IGNORECASE
)  # above the numbers in Taillard's own files
TAILLARD_BLOCKS = ("TIMES", "MACHINES")
JOB_LINE = re.compile(r"job\s*#?\s*(\d+)\s*:(.*)", re.IGNORECASE)
MAKESPAN_LINE = re.compile(r"makespan\s*:?\s+(\S+)", re.IGNORECASE)


@dataclass
class ShopFile:
    """The numbers of a file in its own order."""

    file: Sections  # for messages
    header: Row | None = None
    rows: dict[str, list[Row]] = field(
        default_factory=dict[str, list[Row]]
    )  # of each block; "" without a title
    starts: dict[str, int] = field(default_factory=dict[str, int])  # the line of each block's title
    first: int | None = None  # the number of the first machine, where a comment tells it


@dataclass(frozen=True)
class JobRows:
    """Machines and durations of one job, and the lines they come from."""

    machine_line: int
    machines: tuple[int, ...]  # as numbered in the file
    duration_line: int
    durations: tuple[int, ...]


def read_jsp(path: Path) -> JSSPInstance:
    """The instance of a job-shop file, with its best known makespan if it is a classic or a JSON
    file has it.
    """
    shop = read_shop_file(path)
    count, machine_count = dimensions(shop)
    jobs = read_jobs(shop, count, machine_count)
    check_horizon(shop.file, jobs)
    first = resolve_first_machine(shop, jobs, machine_count)
    check_machines(shop.file, jobs, first, machine_count)
    return assemble(path, path.stem, jobs, first, machine_count)


def assemble(
    path: Path, name: str, jobs: Sequence[JobRows], first: int, machine_count: int
) -> JSSPInstance:
    """The instance of jobs that were checked one by one; what is wrong with the whole is said of
    the file.
    """
    durations = tuple(job.durations for job in jobs)
    machines = tuple(tuple(m - first for m in job.machines) for job in jobs)
    try:
        instance = JSSPInstance(name, durations, machines, machine_count, first)
    except InputError as error:
        raise InputError.at(path, None, str(error)) from error
    return with_best_makespan(path.parent, instance)


def is_job_shop_file(path: Path) -> bool:
    """Whether a file begins as a job-shop file does: with numbers, behind comments; or with
    Taillard's title.
    """
    texts = (text.partition(COMMENT)[0].strip() for _, text in text_lines(path))
    first = next((text for text in texts if text), "")
    return bool(TAILLARD_TITLE.match(first)) or (
        bool(first) and all(NUMBER_WORD.fullmatch(word) for word in first.split())
    )


def read_shop_file(path: Path) -> ShopFile:
    """The header and the rows of numbers; comments are left out."""
    shop = ShopFile(Sections(path, {}, {}, {}))
    block = ""
    for line, text in text_lines(path):
        text, _, comment = text.partition(COMMENT)
        if told := FIRST_MACHINE.search(comment):
            shop.first = int(told[1])
        words = text.split()
        if not words:
            continue
        if TAILLARD_TITLE.match(text):
            refuse_second(shop, line)
        elif text.strip().upper() in TAILLARD_BLOCKS and shop.header:
            block = open_block(shop, line, text.strip().upper())
        elif shop.header is None:
            shop.header = Row(line, words)
        else:
            shop.rows.setdefault(block, []).append(Row(line, words))
    return shop


def refuse_second(shop: ShopFile, line: int) -> None:
    """Raise at the title of an instance behind the first."""
    if shop.header:
        raise shop.file.error(
            line, "a second instance begins here, expected one; give each a file of its own"
        )


def open_block(shop: ShopFile, line: int, block: str) -> str:
    """Note the title of a matrix, which must be given once and before any row."""
    if block in shop.starts:
        raise shop.file.error(
            line, f"'{block.title()}' is given twice, expected it once; remove one"
        )
    if "" in shop.rows:
        raise shop.file.error(
            line, f"'{block.title()}' stands behind rows without a title; expected titles for both"
        )
    shop.starts[block] = line
    return block


def dimensions(shop: ShopFile) -> tuple[int, int]:
    """Numbers of jobs and machines, within what the package solves."""
    if shop.header is None:
        raise shop.file.error(
            None, "has no numbers, expected the numbers of jobs and machines and then a row per job"
        )
    line, words = shop.header
    if len(words) not in (2, 6):  # Taillard adds two seeds and two bounds
        more = (
            "; three of them begin files of flexible job shops, which are not supported"
            if len(words) == 3
            else ""
        )
        message = (
            f"read {len(words)} words, expected two: the numbers of jobs and of machines{more}"
        )
        raise shop.file.error(line, message)
    jobs = parse_count(shop.file, line, words[0], "jobs", MAX_JOBS)
    return jobs, parse_count(shop.file, line, words[1], "machines", MAX_MACHINES)


def parse_count(file: Sections, line: int, word: str, what: str, most: int) -> int:
    """A number of jobs or machines."""
    value = file.whole(line, word, f"the number of {what}")
    if not 1 <= value <= most:
        raise file.error(
            line, f"the file has {value} {what}, expected 1 to {most}, the limit of this package"
        )
    return value


def read_jobs(shop: ShopFile, count: int, machine_count: int) -> list[JobRows]:
    """The jobs in whichever form the titles, or else the number and length of the rows, say."""
    assert shop.header is not None
    if shop.starts:
        times, machines = (matrix_block(shop, key, count) for key in TAILLARD_BLOCKS)
        return jobs_from_matrices(shop.file, times, machines)
    rows = shop.rows.get("", [])
    if len(rows) == 2 * count and all(len(row.words) == machine_count for row in rows):
        return jobs_from_matrices(shop.file, rows[:count], rows[count:])
    if len(rows) != count:
        forms = (
            f"{count} rows of pairs, or {2 * count} of {machine_count} numbers in Taillard's form"
        )
        raise shop.file.error(
            shop.header.line, f"{len(rows)} rows follow, {count} jobs need {forms}; correct one"
        )
    return [job_from_pairs(shop.file, row) for row in rows]


def matrix_block(shop: ShopFile, key: str, count: int) -> list[Row]:
    """The rows of one of Taillard's matrices."""
    assert shop.header is not None
    if key not in shop.starts:
        raise shop.file.error(
            None, f"'{key.title()}' is missing, expected it above the second matrix"
        )
    rows = shop.rows.get(key, [])
    if len(rows) != count:
        raise shop.file.error(
            shop.starts[key], f"'{key.title()}' has {len(rows)} rows, the header says {count} jobs"
        )
    return rows


def job_from_pairs(file: Sections, row: Row) -> JobRows:
    """The job of a row in the standard form."""
    line, words = row
    if len(words) % 2:
        message = (
            f"read {len(words)} numbers, expected pairs: machine and duration of each operation"
        )
        raise file.error(line, message)
    machines = tuple(file.whole(line, word, "a machine") for word in words[::2])
    return JobRows(
        line, machines, line, tuple(file.whole(line, word, "a duration") for word in words[1::2])
    )


def jobs_from_matrices(
    file: Sections, times: Sequence[Row], machines: Sequence[Row]
) -> list[JobRows]:
    """The jobs of Taillard's form."""
    return [job_from_rows(file, *rows) for rows in zip(times, machines, strict=True)]


def job_from_rows(file: Sections, times: Row, machines: Row) -> JobRows:
    """The job of a row of times and a row of machines."""
    if len(times.words) != len(machines.words):
        message = f"read {len(machines.words)} machines, the durations on line {times.line} are {len(times.words)}"
        raise file.error(machines.line, message)
    places = tuple(file.whole(machines.line, word, "a machine") for word in machines.words)
    durations = tuple(file.whole(times.line, word, "a duration") for word in times.words)
    return JobRows(machines.line, places, times.line, durations)


def check_horizon(file: Sections, jobs: Sequence[JobRows]) -> None:
    """Raise at the line where all durations together become too long."""
    total = 0
    for job in jobs:
        total += sum(job.durations)
        if total > MAX_HORIZON:
            message = f"the durations up to here add up to {total:,}, at most {MAX_HORIZON:,} are supported"
            raise file.error(job.duration_line, f"{message}; use a coarser unit of time")


def resolve_first_machine(shop: ShopFile, jobs: Sequence[JobRows], count: int) -> int:
    """Whether the file counts its machines from 0 or from 1, refused where both can be meant."""
    numbers = {m for job in jobs for m in job.machines}
    first = first_machine(numbers, count) if shop.first is None else shop.first
    if first is None:
        assert shop.header is not None
        found = f"of {count} machines the jobs use neither 0 nor {count}, so that they may count from 0 or from 1"
        raise shop.file.error(shop.header.line, f"{found}; add a line '# first machine: 0', or 1")
    return first


def check_machines(file: Sections, jobs: Sequence[JobRows], first: int, count: int) -> None:
    """Raise at the first machine that is not in the shop."""
    for job in jobs:
        for machine in job.machines:
            if not first <= machine < first + count:
                known = f"expected {first} to {first + count - 1}, as the file counts its {count} machines from {first}"
                raise file.error(job.machine_line, f"read machine {machine}, {known}")


def read_schedule(path: Path, instance: JSSPInstance) -> Schedule:
    """The schedule of a file, which must be feasible for the instance and have the makespan that
    the file says.

    Lines are 'Job 1: ' and the start times of its operations, and 'Makespan ' and a number, which
    may be left out.
    """
    file = Sections(path, {}, {}, {})
    jobs: dict[int, tuple[int, ...]] = {}
    makespan: tuple[int, int] | None = None
    for line, text in text_lines(path):
        text = text.partition(COMMENT)[0].strip()
        if job := JOB_LINE.fullmatch(text):
            read_job(file, line, job, instance, jobs)
        elif said := MAKESPAN_LINE.fullmatch(text):
            makespan = line, file.whole(line, said[1], "the makespan")
        elif text:
            expected = "'Job 1: ' and start times, or 'Makespan ' and a number"
            raise file.error(line, f"read {text[:40]!r}, expected {expected}")
    return check_schedule(file, instance, jobs, makespan)


def read_job(
    file: Sections,
    line: int,
    found: re.Match[str],
    instance: JSSPInstance,
    jobs: dict[int, tuple[int, ...]],
) -> None:
    """Note the start times of one job."""
    number = file.whole(line, found[1], "the number of a job")
    if not 1 <= number <= instance.job_count or number in jobs:
        what = "is given twice" if number in jobs else f"is not in {instance.name}"
        raise file.error(
            line, f"job {number} {what}, expected jobs 1 to {instance.job_count} once each"
        )
    starts = tuple(file.whole(line, word, "a start time") for word in found[2].split())
    if len(starts) != len(instance.durations[number - 1]):
        needed = len(instance.durations[number - 1])
        raise file.error(
            line,
            f"job {number} has {len(starts)} start times, {instance.name} has {needed} operations",
        )
    jobs[number] = starts


def check_schedule(
    file: Sections,
    instance: JSSPInstance,
    jobs: dict[int, tuple[int, ...]],
    makespan: tuple[int, int] | None,
) -> Schedule:
    """The schedule of these jobs, or an error that names what is wrong with it."""
    if len(jobs) < instance.job_count:
        missing = next(n for n in range(1, instance.job_count + 1) if n not in jobs)
        raise file.error(
            None,
            f"job {missing} is missing, {instance.name} has {instance.job_count}; is it complete?",
        )
    schedule = Schedule(tuple(jobs[number] for number in sorted(jobs)))
    try:
        schedule.check(instance)
    except Infeasible as error:
        raise file.error(None, f"is no schedule for {error}") from error
    if makespan and makespan[1] != schedule.cost(instance):
        line, said = makespan
        raise file.error(
            line,
            f"the makespan is said to be {said}, the schedule ends at {schedule.cost(instance)}",
        )
    return schedule


def write_schedule(path: Path, schedule: Schedule, instance: JSSPInstance, comment: str) -> None:
    """Check a schedule and write the start times of each job, in the order of its operations."""
    schedule.check(instance)
    remarks = (instance.name, comment, "start times of the operations of each job")
    lines = [f"{COMMENT} {' '.join(text.split())}" for text in remarks if text]
    jobs = [
        f"Job {number}: {' '.join(map(str, row))}"
        for number, row in enumerate(schedule.to_file_numbers(instance), 1)
    ]
    write_text(path, "\n".join([*lines, f"Makespan {schedule.cost(instance)}", *jobs, ""]))


def write_jsp(path: Path, instance: JSSPInstance, comment: str = "") -> None:
    """Write an instance in the standard form, its machines numbered as in the file it came from."""
    first = instance.first_machine
    remarks = (comment, f"first machine: {first}")
    lines = [f"{COMMENT} {' '.join(text.split())}" for text in remarks if text]
    rows = zip(instance.machines, instance.durations, strict=True)
    jobs = ["  ".join(f"{m + first} {d}" for m, d in zip(*row, strict=True)) for row in rows]
    write_text(
        path, "\n".join([*lines, f"{instance.job_count} {instance.machine_count}", *jobs, ""])
    )
