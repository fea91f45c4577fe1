"""numba: the rules of a job shop, for one rollout at a time. Times are whole numbers."""

import numpy as np

from rhumbline.kernels.numba.job_shop.network import FEATURES, NEAR_FEATURES, njit_function


@njit_function
def start_schedule(jobs, machines, load, state):
    """Set the state of an empty schedule: next operations and free times of jobs, free times and work left of machines."""
    for i in range(2 * jobs + machines):
        state[i] = 0
    for m in range(machines):
        state[2 * jobs + machines + m] = load[m]


@njit_function
def largest(times, count):
    """Return the largest of some times, 0 at least."""
    most = np.int64(0)
    for i in range(count):
        most = times[i] if times[i] > most else most
    return most


@njit_function
def find_candidates(
    jobs, columns, machines, active, duration, machine, following, job_free, machine_free, left, start, place, allowed
):  # fmt: skip
    """Find the jobs that may be dispatched; return their number and the job whose operation ends first.

    Allowed is the conflict set if `active`, else every unfinished job. Ties between operations that end first go to
    those with a positive duration, then to those on the machine with more work left, then to the first job, as in
    `problems.jssp.rules.conflict_set`. `start` and `place` get when and on which machine each job's operation goes on;
    the last machine stands for none. Without an unfinished job the numbers are 0 and -1.
    """
    best, best_end, best_timed, best_left = -1, 0, False, 0
    for j in range(jobs):
        cell = j * columns + following[j]
        m = machine[cell]
        place[j] = m
        start[j] = job_free[j] if job_free[j] > machine_free[m] else machine_free[m]
        if m == machines - 1:
            continue
        end, timed = start[j] + duration[cell], duration[cell] > 0
        is_better = best < 0 or end < best_end
        if best >= 0 and end == best_end:
            is_better = (timed and not best_timed) or (timed == best_timed and left[m] > best_left)
        if is_better:
            best, best_end, best_timed, best_left = j, end, timed, left[m]
    count = 0
    for j in range(jobs):
        may = place[j] < machines - 1
        if active and may:
            may = j == best or (place[j] == place[best] and start[j] < best_end)
        allowed[j] = may
        count += may
    return count, best


@njit_function
def dispatch(job, columns, machines, duration, machine, following, job_free, machine_free, left):
    """Append the next operation of a job to its machine; a finished job changes nothing."""
    cell = job * columns + following[job]
    m = machine[cell]
    if m == machines - 1:
        return
    begin = job_free[job] if job_free[job] > machine_free[m] else machine_free[m]
    end = begin + duration[cell]
    following[job] += 1
    job_free[job] = end
    machine_free[m] = end
    left[m] -= duration[cell]


@njit_function
def write_features(
    jobs, columns, machines, duration, tail, following, job_free, machine_free, left, start, place, allowed, unit, bound,
    row, near, features, row_machine,
):  # fmt: skip
    """Write the features of the unfinished jobs from a row on, as `policies.jssp.decision_features` does.

    `near` gets the times that are still to be compressed. Returns the row behind the last.
    """
    frontier = finish = np.int64(2**62)
    makespan = np.int64(0)
    for j in range(jobs):
        cell = j * columns + following[j]
        through = start[j] + tail[cell]
        makespan = through if through > makespan else makespan
        if place[j] < machines - 1:
            end = start[j] + duration[cell]
            frontier = start[j] if start[j] < frontier else frontier
            finish = end if end < finish else finish
    for m in range(machines):
        busy = machine_free[m] + left[m]
        makespan = busy if busy > makespan else makespan
    for j in range(jobs):
        m = place[j]
        if m == machines - 1:
            continue
        cell = j * columns + following[j]
        n, f = row * NEAR_FEATURES, row * FEATURES
        near[n] = np.float32(job_free[j] - frontier) / unit
        near[n + 1] = np.float32(machine_free[m] - frontier) / unit
        near[n + 2] = np.float32(start[j] - frontier) / unit
        near[n + 3] = np.float32(start[j] + duration[cell] - finish) / unit
        near[n + 4] = np.float32(start[j] - finish) / unit
        near[n + 5] = np.float32(start[j] + tail[cell] - makespan) / unit
        near[n + 6] = np.float32(machine_free[m] + left[m] - makespan) / unit
        near[n + 7] = np.float32(duration[cell]) / unit
        features[f + 8] = np.float32(tail[cell]) / bound
        features[f + 9] = np.float32(left[m]) / bound
        features[f + 10] = np.float32(makespan - frontier) / bound
        features[f + 11] = np.float32(following[j]) / np.float32(columns)
        features[f + 12] = np.float32(allowed[j])
        row_machine[row] = np.float32(m)
        row += 1
    return row
