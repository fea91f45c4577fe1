"""Job-shop files as JSPLIB and Taillard write them, and schedule files.

Both forms begin with the numbers of jobs and machines. The standard form then has a row of pairs
(machine, duration) for each job. Taillard's has a matrix of times and one of machines, with or
without the titles 'Times' and 'Machines'. Rows may differ in length, except in matrices without
titles. Comments begin with '#'.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from rhumbline.errors import (
    Infeasible,
    InputError,
    escape_controls,
    note_once,
    quote,
    shorten,
    shorten_path,
)
from rhumbline.formats.best_known import with_best_makespan
from rhumbline.formats.safe_io import write_text
from rhumbline.formats.sections import Row, Sections, text_lines
from rhumbline.formats.values.decimal_words import refuse_decimal_words
from rhumbline.problems.jssp.instance import (
    LIMITS,
    JSSPInstance,
    Schedule,
    count_with_noun,
    infer_first_machine,
)


@dataclass(frozen=True)
class JobShopGrammar:
    """The words of job-shop and schedule files.

    Repetitions are possessive (`*+`), so that a line of spaces takes linear time.
    """

    comment: str = "#"
    # A comment that says where the numbers of machines begin; it has priority over the numbers.
    first_machine: re.Pattern[str] = re.compile(
        r"first machine\s*+[:=]?\s*+([01])\b", re.IGNORECASE
    )
    # Also numbers that no job shop may have: `read_jsp` then says what is wrong.
    number_word: re.Pattern[str] = re.compile(r"[+-]?\d+(\.\d*)?")
    # Above the numbers in Taillard's files.
    taillard_title: re.Pattern[str] = re.compile(r"nb\.? of jobs\b", re.IGNORECASE)
    taillard_blocks: tuple[str, ...] = ("TIMES", "MACHINES")
    job_line: re.Pattern[str] = re.compile(r"job\s*+#?\s*+(\d++)\s*+:(.*)", re.IGNORECASE)
    makespan_line: re.Pattern[str] = re.compile(r"makespan(?:\s*+:)?+\s++(\S++)", re.IGNORECASE)


GRAMMAR = JobShopGrammar()


@dataclass
class ShopFile:
    """The numbers of a file in the order of the file."""

    file: Sections  # for messages
    header: Row | None = None
    rows: dict[str, list[Row]] = field(default_factory=dict[str, list[Row]])  # "": without title
    starts: dict[str, int] = field(default_factory=dict[str, int])  # line of each block's title
    first_machine: int | None = None  # number of the first machine, if a comment gives it


class JobRows(NamedTuple):
    """Machines and durations of one job, and the lines they come from."""

    machine_line: int
    machines: tuple[int, ...]  # as numbered in the file
    duration_line: int
    durations: tuple[int, ...]


def read_jsp(path: Path) -> JSSPInstance:
    """Read a job-shop file, with its best known makespan if a JSON file or the table has it."""
    shop = read_shop_file(path)
    count, machine_count = dimensions(shop)
    jobs = read_jobs(shop, count, machine_count)
    check_horizon(shop.file, jobs)
    first = resolve_first_machine(shop, jobs, machine_count)
    check_machines(shop.file, jobs, first, machine_count)
    note_short_rows(shop, jobs, machine_count)
    return build_instance(path, path.stem, jobs, first, machine_count)


def build_instance(
    path: Path, name: str, jobs: Sequence[JobRows], first: int, machine_count: int
) -> JSSPInstance:
    """Return the instance of jobs that were checked one by one.

    Errors about the whole instance name the file without a line.
    """
    durations = tuple(job.durations for job in jobs)
    machines = tuple(tuple(number - first for number in job.machines) for job in jobs)
    try:
        instance = JSSPInstance(name, durations, machines, machine_count, first)
    except InputError as error:
        raise InputError.at(path, None, str(error)) from error
    return with_best_makespan(path.parent, instance)


def is_job_shop_file(path: Path) -> bool:
    """Return whether a file begins like a job shop: with numbers or with Taillard's title."""
    for _, full_text in text_lines(path):
        text = full_text.partition(GRAMMAR.comment)[0].strip()
        if GRAMMAR.taillard_title.match(text):
            return True
        if text:
            words = text.split()
            return all(GRAMMAR.number_word.fullmatch(word) for word in words)
    return False


def read_shop_file(path: Path) -> ShopFile:
    """Read the header and the rows of numbers; comments are left out."""
    shop = ShopFile(Sections(path, {}, {}, {}))
    block = ""
    for line, full_text in text_lines(path):
        text, _, comment = full_text.partition(GRAMMAR.comment)
        if stated := GRAMMAR.first_machine.search(comment):
            shop.first_machine = int(stated[1])
        words = text.split()
        title = text.strip().upper()
        if not words:
            continue
        if GRAMMAR.taillard_title.match(text):
            refuse_second_instance(shop, line)
        elif title in GRAMMAR.taillard_blocks and shop.header:
            block = open_block(shop, line, title)
        elif shop.header is None:
            shop.header = Row(line, words)
        else:
            rows = shop.rows.setdefault(block, [])
            rows.append(Row(line, words))
    return shop


def refuse_second_instance(shop: ShopFile, line: int) -> None:
    """Raise at the title of an instance behind the first."""
    if shop.header:
        message = "a second instance begins here, expected one; give each a file of its own"
        raise shop.file.error(line, message)


def open_block(shop: ShopFile, line: int, block: str) -> str:
    """Record the title of a matrix, which must come once and before any row without a title."""
    file = shop.file
    title = block.title()
    if block in shop.starts:
        raise file.error(line, f"'{title}' is given twice, expected it once; remove one")
    if "" in shop.rows:
        found = f"'{title}' stands behind rows without a title"
        raise file.error(line, f"{found}; expected titles for both")
    shop.starts[block] = line
    return block


def dimensions(shop: ShopFile) -> tuple[int, int]:
    """Return the numbers of jobs and machines, within what the package solves."""
    if shop.header is None:
        expected = "expected the numbers of jobs and machines and then a row per job"
        raise shop.file.error(None, f"has no numbers, {expected}")
    line, words = shop.header
    if len(words) not in (2, 6):  # Taillard adds two seeds and two bounds
        message = f"read {len(words)} words, expected two: the numbers of jobs and of machines"
        if len(words) == 3:
            message += "; three of them begin files of flexible job shops, which are not supported"
        raise shop.file.error(line, message)
    jobs = parse_count(shop.file, line, words[0], "jobs", LIMITS.max_jobs)
    machines = parse_count(shop.file, line, words[1], "machines", LIMITS.max_machines)
    return jobs, machines


def parse_count(file: Sections, line: int, word: str, what: str, limit: int) -> int:
    """Return a number of jobs or machines, 1 to the limit."""
    count = file.parse_integer(line, word, f"the number of {what}")
    if not 1 <= count <= limit:
        found = f"the file has {count} {what}"
        expected = f"expected 1 to {limit}, the limit of this package"
        raise file.error(line, f"{found}, {expected}")
    return count


def read_jobs(shop: ShopFile, count: int, machine_count: int) -> list[JobRows]:
    """Return the jobs in the form that the titles, or the number and length of rows, indicate."""
    assert shop.header is not None
    file = shop.file
    if shop.starts:
        blocks = [matrix_block(shop, key, count) for key in GRAMMAR.taillard_blocks]
        return jobs_from_matrices(file, *blocks)
    rows = shop.rows.get("", [])
    are_full = all(len(row.words) == machine_count for row in rows)
    if len(rows) == 2 * count and are_full:
        times = rows[:count]
        machines = rows[count:]
        return jobs_from_matrices(file, times, machines)
    if len(rows) != count:
        taillard = f"{2 * count} of {machine_count} numbers in Taillard's form"
        needed = f"{count} jobs need {count} rows of pairs, or {taillard}"
        message = f"{len(rows)} rows follow, {needed}; correct one"
        raise file.error(shop.header.line, message)
    return [job_from_pairs(file, row) for row in rows]


def matrix_block(shop: ShopFile, key: str, count: int) -> list[Row]:
    """Return the rows of one of Taillard's matrices."""
    assert shop.header is not None
    title = key.title()
    if key not in shop.starts:
        message = f"'{title}' is missing, expected it above the second matrix"
        raise shop.file.error(None, message)
    rows = shop.rows.get(key, [])
    if len(rows) != count:
        found = f"'{title}' has {len(rows)} rows"
        raise shop.file.error(shop.starts[key], f"{found}, the header says {count} jobs")
    return rows


def job_from_pairs(file: Sections, row: Row) -> JobRows:
    """Return the job of a row in the standard form."""
    line, words = row
    if len(words) % 2:
        found = f"read {len(words)} numbers"
        expected = "expected pairs: machine and duration of each operation"
        raise file.error(line, f"{found}, {expected}")
    machines = integers_of_words(file, line, words[::2], "a machine")
    durations = integers_of_words(file, line, words[1::2], "a duration")
    return JobRows(line, machines, line, durations)


def integers_of_words(
    file: Sections, line: int, words: Sequence[str], what: str
) -> tuple[int, ...]:
    """Return words of a line as whole numbers, 0 or more."""
    if what == "a duration":
        refuse_decimal_words(file, line, words, what)
    numbers = [file.parse_integer(line, word, what) for word in words]
    return tuple(numbers)


def jobs_from_matrices(
    file: Sections, times: Sequence[Row], machines: Sequence[Row]
) -> list[JobRows]:
    """Return the jobs of Taillard's form."""
    return [job_from_rows(file, *rows) for rows in zip(times, machines, strict=True)]


def job_from_rows(file: Sections, times: Row, machines: Row) -> JobRows:
    """Return the job of a row of times and a row of machines."""
    time_line, time_words = times
    line, words = machines
    if len(time_words) != len(words):
        found = f"read {len(words)} machines"
        expected = f"the durations on line {time_line} are {len(time_words)}"
        raise file.error(line, f"{found}, {expected}")
    numbers = integers_of_words(file, line, words, "a machine")
    durations = integers_of_words(file, time_line, time_words, "a duration")
    return JobRows(line, numbers, time_line, durations)


def check_horizon(file: Sections, jobs: Sequence[JobRows]) -> None:
    """Raise at the line where the sum of all durations exceeds the limit."""
    max_horizon = LIMITS.max_horizon
    total = 0
    for job in jobs:
        total += sum(job.durations)
        if total > max_horizon:
            found = f"the durations up to here add up to {total:,}"
            limit = f"at most {max_horizon:,} are supported"
            message = f"{found}, {limit}; use a coarser unit of time"
            raise file.error(job.duration_line, message)


def resolve_first_machine(shop: ShopFile, jobs: Sequence[JobRows], count: int) -> int:
    """Return whether the file numbers its machines from 0 or from 1; raise if both are possible."""
    first = shop.first_machine
    if first is None:
        first = infer_first_machine({number for job in jobs for number in job.machines}, count)
    if first is None:
        assert shop.header is not None
        found = f"of {count} machines the jobs use neither 0 nor {count}"
        advice = "add a line '# first machine: 0', or 1"
        message = f"{found}, so that they may count from 0 or from 1; {advice}"
        raise shop.file.error(shop.header.line, message)
    return first


def check_machines(file: Sections, jobs: Sequence[JobRows], first: int, count: int) -> None:
    """Raise at the first machine that the job shop does not have."""
    last = first + count - 1
    for job in jobs:
        for machine in job.machines:
            if not first <= machine <= last:
                counting = f"as the file counts its {count} machines from {first}"
                message = f"read machine {machine}, expected {first} to {last}, {counting}"
                raise file.error(job.machine_line, message)


def note_short_rows(shop: ShopFile, jobs: Sequence[JobRows], count: int) -> None:
    """Say on stderr which jobs have fewer operations than the header has machines.

    They are legal, but in most files they come from a lost end of a line. A file that says
    where its machines begin is in our own form, in which jobs of any length are common.
    """
    short = [job for job in jobs if len(job.machines) < count]
    if not short or shop.first_machine is not None:
        return
    line, machines, _, _ = short[0]
    path = shorten_path(shop.file.path)
    length = len(machines)
    operations = count_with_noun(length, "operation")
    found = f"this job has {operations}, the header says {count} machines"
    rows = len(short)
    extent = f"shorter rows: {rows} of {len(jobs)}"
    note_once(f"{path}:{line}: {found} ({extent}); is the file complete?")


def read_schedule(path: Path, instance: JSSPInstance) -> Schedule:
    """Read a schedule, which must be feasible for the instance and have the stated makespan.

    Lines are 'Job 1: ' and the start times of its operations, and 'Makespan ' and a number, which
    may be left out.
    """
    file = Sections(path, {}, {}, {})
    jobs: dict[int, tuple[int, ...]] = {}
    makespan: tuple[int, int] | None = None  # line and number
    for line, full_text in text_lines(path):
        text, _, _ = full_text.partition(GRAMMAR.comment)
        text = text.strip()
        if job := GRAMMAR.job_line.fullmatch(text):
            read_job(file, line, job, instance, jobs)
        elif stated := GRAMMAR.makespan_line.fullmatch(text):
            makespan = line, file.parse_integer(line, stated[1], "the makespan")
        elif text:
            expected = "expected 'Job 1: ' and start times, or 'Makespan ' and a number"
            raise file.error(line, f"read {quote(text)}, {expected}")
    return check_schedule(file, instance, jobs, makespan)


def read_job(
    file: Sections,
    line: int,
    found: re.Match[str],
    instance: JSSPInstance,
    jobs: dict[int, tuple[int, ...]],
) -> None:
    """Add the start times of one job to `jobs`."""
    name = shorten(instance.name)
    count = instance.job_count
    number = file.parse_integer(line, found[1], "the number of a job")
    problem = ""
    if number in jobs:
        problem = "is given twice"
    elif not 1 <= number <= count:
        problem = f"is not in {name}"
    if problem:
        expected = f"expected jobs 1 to {count} once each"
        raise file.violation(line, f"job {number} {problem}, {expected}")
    words = found[2].split()
    starts = integers_of_words(file, line, words, "a start time")
    needed = len(instance.durations[number - 1])
    if len(starts) != needed:
        given = f"job {number} has {len(starts)} start times"
        expected = f"{name} has {needed} operations"
        raise file.violation(line, f"{given}, {expected}")
    jobs[number] = starts


def check_schedule(
    file: Sections,
    instance: JSSPInstance,
    jobs: dict[int, tuple[int, ...]],
    makespan: tuple[int, int] | None,
) -> Schedule:
    """Return the schedule of these jobs, or raise with what is wrong with it."""
    if len(jobs) < instance.job_count:
        missing = next(n for n in range(1, instance.job_count + 1) if n not in jobs)
        found = f"job {missing} is missing, {shorten(instance.name)} has {instance.job_count}"
        raise file.violation(None, f"{found}; is it complete?")
    schedule = Schedule(tuple(jobs[number] for number in sorted(jobs)))
    try:
        schedule.check(instance)
    except Infeasible as error:
        raise file.violation(None, f"is no schedule for {error}") from error
    end = schedule.cost(instance)
    if makespan and makespan[1] != end:
        line, stated = makespan
        message = f"the makespan is said to be {stated}, the schedule ends at {end}"
        raise file.violation(line, message)
    return schedule


def write_schedule(path: Path, schedule: Schedule, instance: JSSPInstance, comment: str) -> None:
    """Check a schedule and write the start times of each job, in the order of its operations."""
    schedule.check(instance)
    about = "start times of the operations of each job"
    lines = comment_lines(instance.name, comment, about)
    lines.append(f"Makespan {schedule.cost(instance)}")
    rows = schedule.to_file_numbers(instance)
    for number, starts in enumerate(rows, 1):
        words = " ".join(map(str, starts))
        lines.append(f"Job {number}: {words}")
    lines.append("")
    write_text(path, "\n".join(lines))


def write_jsp(path: Path, instance: JSSPInstance, comment: str = "") -> None:
    """Write an instance in the standard form, with machines numbered as in its own file."""
    first = instance.first_machine
    lines = comment_lines(comment, f"first machine: {first}")
    lines.append(f"{instance.job_count} {instance.machine_count}")
    rows = zip(instance.machines, instance.durations, strict=True)
    for machines, durations in rows:
        numbers = [machine + first for machine in machines]
        operations = zip(numbers, durations, strict=True)
        pairs = [f"{number} {duration}" for number, duration in operations]
        lines.append("  ".join(pairs))
    lines.append("")
    write_text(path, "\n".join(lines))


def comment_lines(*remarks: str) -> list[str]:
    """Return the remarks that are not empty as comments of one line each."""
    lines: list[str] = []
    for text in remarks:
        if text:
            one_line = escape_controls(" ".join(text.split()))
            lines.append(f"{GRAMMAR.comment} {one_line}")
    return lines
