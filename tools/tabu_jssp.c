/* A tabu search for the job shop: it makes references where CP-SAT on one thread is far from the optimum.

   Moves bring an operation of a critical block to the block's ends, or an end into the block (neighbourhood N7 of Zhang
   et al. 2007), judged by heads and tails of the moved segment alone (Balas and Vazacopoulos 1998). A small pool of good
   schedules is kept; each round starts between two of them: operations sorted by a weighted mean of their starting times,
   which respects every job's order and hence is feasible.

   cc -O3 -shared -fPIC -o tabu_jssp.so tabu_jssp.c        (reference_jssp.py does it) */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { LARGEST = 2048, POOL = 12, PATIENCE = 12500 }; /* operations; schedules kept; fruitless iterations of a round */

typedef struct {
    int count, jobs, width, makespan; /* operations, jobs, operations of a job */
    const int *durations, *machines;
    int before[LARGEST], after[LARGEST]; /* neighbours on the machine, or -1 */
    int heads[LARGEST], tails[LARGEST];  /* longest way to an operation's start, and from its end */
    int64_t *until;                      /* [a, b]: a must not be put before b until then */
    uint64_t random;
} Search;

typedef struct {
    int source, target; /* places on the critical path */
} Move;

static const Move NONE = {-1, -1};

static int draw(Search *s, int below) { /* xorshift64*, Vigna 2016 */
    s->random ^= s->random >> 12;
    s->random ^= s->random << 25;
    s->random ^= s->random >> 27;
    return (int)(((s->random * 2685821657736338717ULL) >> 33) % (uint64_t)below);
}

static int job_before(const Search *s, int o) { return o % s->width ? o - 1 : -1; }
static int job_after(const Search *s, int o) { return (o + 1) % s->width ? o + 1 : -1; }
static int end_of(const Search *s, int o) { return o < 0 ? 0 : s->heads[o] + s->durations[o]; }
static int rest_from(const Search *s, int o) { return o < 0 ? 0 : s->tails[o] + s->durations[o]; }
static int larger(int a, int b) { return a > b ? a : b; }

/* Heads, tails and the makespan of the machine orders; 0 if the orders contradict each other. */
static int measure(Search *s) {
    int order[LARGEST], waiting[LARGEST], filled = 0;
    for (int o = 0; o < s->count; o++) {
        waiting[o] = (job_before(s, o) >= 0) + (s->before[o] >= 0);
        if (!waiting[o]) order[filled++] = o;
    }
    for (int done = 0; done < filled; done++) {
        int o = order[done], followers[2] = {job_after(s, o), s->after[o]};
        s->heads[o] = larger(end_of(s, job_before(s, o)), end_of(s, s->before[o]));
        for (int f = 0; f < 2; f++)
            if (followers[f] >= 0 && !--waiting[followers[f]]) order[filled++] = followers[f];
    }
    s->makespan = 0;
    for (int at = filled - 1; at >= 0; at--) {
        int o = order[at];
        s->tails[o] = larger(rest_from(s, job_after(s, o)), rest_from(s, s->after[o]));
        s->makespan = larger(s->makespan, end_of(s, o) + s->tails[o]);
    }
    return filled == s->count;
}

static int critical(const Search *s, int o) { return end_of(s, o) + s->tails[o] == s->makespan; }

/* One longest path, taken at random where several go on; its length. */
static int critical_path(Search *s, int *path) {
    int length = 0, seen = 0, here = -1;
    for (int o = 0; o < s->count; o++)
        if (s->heads[o] == 0 && critical(s, o) && !draw(s, ++seen)) here = o;
    while (here >= 0) {
        int followers[2] = {job_after(s, here), s->after[here]}, end = end_of(s, here);
        path[length++] = here;
        here = -1, seen = 0;
        for (int f = 0; f < 2; f++) {
            int o = followers[f];
            if (o >= 0 && s->heads[o] == end && critical(s, o) && !draw(s, ++seen)) here = o;
        }
    }
    return length;
}

/* Whether a move surely makes no cycle: no passed operation leads back to the moved one's job. */
static int feasible(const Search *s, const int *path, Move m) {
    int o = path[m.source], goal = path[m.target];
    if (m.source < m.target) return job_after(s, o) < 0 || rest_from(s, goal) >= rest_from(s, job_after(s, o));
    return job_before(s, o) < 0 || end_of(s, goal) >= end_of(s, job_before(s, o));
}

/* The operations between the two places with the moved one in its new place; how many. */
static int rearranged(const int *path, Move m, int *segment) {
    int size = abs(m.target - m.source) + 1;
    if (m.source < m.target) {
        memcpy(segment, path + m.source + 1, (size - 1) * sizeof(int));
        segment[size - 1] = path[m.source];
    } else {
        segment[0] = path[m.source];
        memcpy(segment + 1, path + m.target, (size - 1) * sizeof(int));
    }
    return size;
}

/* The longest path through a reordered segment between two machine neighbours, all else as it was. */
static int guess(const Search *s, const int *segment, int size, int before, int after) {
    int heads[LARGEST], end = end_of(s, before), rest = rest_from(s, after), longest = 0;
    for (int at = 0; at < size; at++) {
        heads[at] = larger(end, end_of(s, job_before(s, segment[at])));
        end = heads[at] + s->durations[segment[at]];
    }
    for (int at = size - 1; at >= 0; at--) {
        rest = larger(rest, rest_from(s, job_after(s, segment[at]))) + s->durations[segment[at]];
        longest = larger(longest, heads[at] + rest);
    }
    return longest;
}

/* The pair that a move reverses at one place of its segment: the first element now comes before the second. */
static int64_t *decided(const Search *s, const int *segment, int size, int forward, int at, int undo) {
    int first = forward ? segment[at] : segment[0], second = forward ? segment[size - 1] : segment[at + 1];
    return undo ? s->until + second * s->count + first : s->until + first * s->count + second;
}

static int forbidden(const Search *s, const int *segment, int size, int forward, int64_t now) {
    for (int at = 0; at < size - 1; at++)
        if (*decided(s, segment, size, forward, at, 0) > now) return 1;
    return 0;
}

/* The best move that is not forbidden, or would beat `best`; any move if all are forbidden; NONE if there is none. */
static Move choose(Search *s, const int *path, int length, int best, int64_t now) {
    Move chosen = NONE, any = NONE;
    int segment[LARGEST], value = INT32_MAX, ties = 0, seen = 0;
    for (int start = 0, stop; start < length; start = stop + 1) {
        for (stop = start; stop + 1 < length && s->after[path[stop]] == path[stop + 1];) stop++;
        for (int one = start; one <= stop; one++) {
            int inner = start < one && one < stop;
            Move moves[4] = {{one, stop}, {one, start}, {start, one}, {stop, one}};
            for (int way = 0; way < (inner ? 4 : 2); way++) {
                Move m = moves[way];
                int twice = way == 1 && stop - start == 1; /* a block of two has one swap */
                if (m.source == m.target || twice || !feasible(s, path, m)) continue;
                if (!draw(s, ++seen)) any = m;
                int size = rearranged(path, m, segment), low = m.source < m.target ? m.source : m.target;
                int length_of = guess(s, segment, size, s->before[path[low]], s->after[path[low + size - 1]]);
                if (length_of > value) continue;
                if (length_of >= best && forbidden(s, segment, size, m.source < m.target, now)) continue;
                ties = length_of < value ? 1 : ties + 1;
                if (ties == 1 || !draw(s, ties)) chosen = m;
                value = length_of;
            }
        }
    }
    return chosen.source < 0 ? any : chosen;
}

/* Put a segment in its new order on the machine and forbid the way back until `expiry`. */
static void perform(Search *s, const int *path, Move m, int64_t expiry) {
    int segment[LARGEST], size = rearranged(path, m, segment), forward = m.source < m.target;
    int low = forward ? m.source : m.target;
    int previous = s->before[path[low]], following = s->after[path[low + size - 1]];
    for (int at = 0; at < size; previous = segment[at++]) {
        s->before[segment[at]] = previous;
        if (previous >= 0) s->after[previous] = segment[at];
        if (at < size - 1) *decided(s, segment, size, forward, at, 1) = expiry;
    }
    s->after[previous] = following;
    if (following >= 0) s->before[following] = previous;
}

/* Tabu search from the present orders; the best makespan, its starts in `starts`; spends from `left`. */
static int improve(Search *s, int64_t *left, int target, int *starts) {
    int path[LARGEST], shortest = 10 + s->jobs / s->width, longest = shortest + 2 * shortest / 5;
    memset(s->until, 0, sizeof(int64_t) * s->count * s->count);
    measure(s);
    int best = s->makespan, fruitless = 0;
    memcpy(starts, s->heads, sizeof(int) * s->count);
    for (int64_t now = 1; fruitless < PATIENCE && *left > 0 && best > target; now++, fruitless++, --*left) {
        int length = critical_path(s, path);
        Move m = choose(s, path, length, best, now);
        if (m.source < 0) break; /* the critical path is one job: nothing is shorter */
        perform(s, path, m, now + shortest + draw(s, longest - shortest + 1));
        if (!measure(s)) abort(); /* `feasible` rules cycles out */
        if (s->makespan < best) {
            best = s->makespan, fruitless = -1;
            memcpy(starts, s->heads, sizeof(int) * s->count);
        }
    }
    return best;
}

typedef struct {
    double priority;
    int operation;
} Ranked;

static int by_priority(const void *a, const void *b) {
    const Ranked *x = a, *y = b;
    if (x->priority != y->priority) return x->priority < y->priority ? -1 : 1;
    return x->operation - y->operation; /* a job's operations are numbered in their order */
}

static void order_by(Search *s, Ranked *ranked) {
    int last[LARGEST];
    memset(last, -1, sizeof last);
    qsort(ranked, s->count, sizeof(Ranked), by_priority);
    for (int at = 0; at < s->count; at++) {
        int o = ranked[at].operation, machine = s->machines[o];
        s->before[o] = last[machine], s->after[o] = -1;
        if (last[machine] >= 0) s->after[last[machine]] = o;
        last[machine] = o;
    }
}

/* Machine orders from random priorities that rise along each job. */
static void begin_anywhere(Search *s) {
    Ranked ranked[LARGEST];
    for (int o = 0; o < s->count; o++) {
        double sofar = o % s->width ? ranked[o - 1].priority : 0.0;
        ranked[o] = (Ranked){sofar + 1 + draw(s, 1000), o};
    }
    order_by(s, ranked);
}

static void begin_between(Search *s, const int *one, const int *two) {
    Ranked ranked[LARGEST];
    double weight = 0.3 + 0.0004 * draw(s, 1001);
    for (int o = 0; o < s->count; o++) ranked[o] = (Ranked){weight * one[o] + (1 - weight) * two[o], o};
    order_by(s, ranked);
}

static int same(const int *a, const int *b, int count) {
    int apart = 0;
    for (int o = 0; o < count; o++) apart += abs(a[o] - b[o]);
    return apart < count;
}

/* Starts of the best schedule after this number of iterations, or once `target` is reached; its makespan. */
int tabu_search(
    const int *durations, const int *machines, int jobs, int width, int64_t iterations, int target, int seed, int *starts
) {
    static int pool[POOL][LARGEST];
    int costs[POOL], filled = 0, best = 0, found[LARGEST];
    Search *s = calloc(1, sizeof(Search));
    s->count = jobs * width, s->jobs = jobs, s->width = width, s->durations = durations, s->machines = machines;
    s->until = malloc(sizeof(int64_t) * s->count * s->count);
    s->random = 0x9E3779B97F4A7C15ULL * (uint64_t)(seed + 1);
    while (iterations > 0 && (!filled || costs[best] > target)) {
        int one = draw(s, POOL), two = (one + 1 + draw(s, POOL - 1)) % POOL, place = filled;
        if (filled < POOL)
            begin_anywhere(s);
        else
            begin_between(s, pool[one], pool[two]);
        int cost = improve(s, &iterations, target, found), known = 0;
        if (filled < POOL)
            filled++;
        else {
            place = 0;
            for (int at = 0; at < POOL; at++) {
                if (costs[at] > costs[place]) place = at;
                known |= costs[at] == cost && same(pool[at], found, s->count);
            }
            if (known || cost >= costs[place]) continue;
        }
        costs[place] = cost;
        memcpy(pool[place], found, sizeof(int) * s->count);
        for (int at = 0; at < filled; at++)
            if (costs[at] < costs[best]) best = at;
    }
    memcpy(starts, pool[best], sizeof(int) * s->count);
    free(s->until);
    free(s);
    return costs[best];
}
