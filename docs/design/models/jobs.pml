/* The output and the log of a runner's jobs, when it is killed and resumed: crates/jobs/src/gather.rs and log/outlet.rs.
 *
 * Three jobs, each with two pieces of output. A piece goes into the buffer of the sink when the job writes it, or, kept
 * in order, when the turn of the job has come. A flush writes the buffer, piece by piece, and may fail; then what is left
 * of it is lost. SIGKILL may come at any step, so that a line of the log is half written. The run is resumed with the
 * jobs that are not in the log.
 *
 * Properties:
 * - A job that is in the log has all its output out, written by one run.
 * - A job that is in the log is not run again.
 * - In order, the output of a job comes after that of the jobs before it.
 * - Without a kill or a failure, all jobs get into the log. With them, so many runs later.
 *
 * Plants:
 * logged-before-the-flush: a job gets its line while its output is in the buffer.
 * failure-of-another-forgotten: a failed flush counts only for the job that flushed.
 * half-line-continued: a run writes its first line behind the half line of the one before.
 * half-line-taken: a line that is not whole counts.
 * turn-not-awaited: in order, a job is written when it ends.
 * held-forgotten: a job that ended before its turn is not written when its turn comes.
 */

#define JOBS 3
#define FAULTS 2                    /* kills and failures, all together */

bool ordered;
byte faults;
bool logged[JOBS]; bool half; byte half_of;     /* the log; its last line is half a line, with the number of any job */
byte out[JOBS];                                 /* pieces that this run has written */

/* In one run */
bool done[JOBS], ended[JOBS], written[JOBS], failed;
byte made[JOBS], buffer[JOBS];                  /* pieces that the job has made; that the sink has */
byte due, last, j;

#define KILL if :: faults < FAULTS -> faults++; goto killed :: skip fi

inline flush() {
    for (k : 0 .. JOBS - 1) {
        do
        :: buffer[k] > 0 && faults < FAULTS -> faults++; goto killed
        :: buffer[k] > 0 && faults < FAULTS ->
            faults++; failed = true;
            for (k : 0 .. JOBS - 1) { buffer[k] = 0 };
            break
        :: buffer[k] > 0 ->
            assert(!ordered || k >= last);
            last = k; buffer[k]--; out[k]++
        :: buffer[k] == 0 -> break
        od
    }
}

/* Outlet::complete */
inline complete() {
#ifdef FAILURE_OF_ANOTHER_FORGOTTEN
    failed = false;
#endif
#ifndef LOGGED_BEFORE_THE_FLUSH
    flush();
#endif
    if
    :: !failed ->
        if
        :: faults < FAULTS -> faults++; half = true; select (half_of : 0 .. JOBS - 1); goto killed
        :: skip
        fi;
#ifdef HALF_LINE_CONTINUED
        /* it reads as a line of the job before */
        if :: half -> j = half_of :: else fi;
#endif
        assert(out[j] == 2);
        half = false;
        logged[j] = true
    :: else
    fi;
    written[j] = true;
#ifdef LOGGED_BEFORE_THE_FLUSH
    flush();
#endif
    KILL
}

#define RESTS(j) (made[j] == 0 || ended[j])

active proctype Run() {
    byte k;
    if :: ordered = true :: ordered = false fi;
begin:
    skip;
#ifdef HALF_LINE_TAKEN
    if :: half -> logged[half_of] = true :: else fi;
#endif
#ifndef HALF_LINE_CONTINUED
    half = false; /* a new line is begun */
#endif
    d_step {
        for (k : 0 .. JOBS - 1) {
            done[k] = logged[k]; ended[k] = false; written[k] = false; made[k] = 0; buffer[k] = 0;
            out[k] = (logged[k] -> out[k] : 0)
        };
        failed = false; due = 0; last = 0
    };
    do
    /* the run stops: no further job is begun, and those that run end */
    :: failed && RESTS(0) && RESTS(1) && RESTS(2) -> break
    :: due == JOBS || !ordered && (done[0] || written[0]) && (done[1] || written[1]) && (done[2] || written[2]) -> break
    :: else ->
        if
#ifdef TURN_NOT_AWAITED
        :: ordered && due < JOBS && written[due] && !done[due] -> due++
#endif
        :: ordered && due < JOBS && done[due] -> due++
        :: ordered && due < JOBS && !done[due] && ended[due] && !written[due] ->
            j = due;
#ifndef HELD_FORGOTTEN
            buffer[j] = 2;
#endif
            complete();
            due++
        :: atomic { select (j : 0 .. JOBS - 1); };
            if
            :: !done[j] && made[j] < 2 && (made[j] > 0 || !failed) -> /* a piece */
                made[j]++;
                if :: !ordered -> buffer[j]++ :: else fi
            :: !done[j] && made[j] == 2 && !ended[j] ->
                assert(!logged[j]);
                ended[j] = true;
#ifdef TURN_NOT_AWAITED
                buffer[j] = 2;
                complete()
#else
                if :: !ordered -> complete() :: else fi
#endif
            :: else
            fi
        fi
    od;
    if
    :: failed -> goto begin /* resumed when there is room again */
    :: else -> goto over
    fi;
killed:
    goto begin;
over:
    assert(logged[0] && logged[1] && logged[2] && out[0] == 2 && out[1] == 2 && out[2] == 2)
}
