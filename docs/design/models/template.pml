/* The templates of warm programs, and the threads that start and guard them: crates/forkless/src/warm/set.rs.
 *
 * Two threads launch one program, three times together. A launch that finds no template starts a guard and is cold. A template may
 * fail to start, may die, may be idle, or may have served long enough; near its end, a launch starts a successor with a
 * guard of its own. The owner may close the set at any moment. A template ends when nobody has it any more. For the
 * kernel, the guard is the parent of its template and of the children that this has made: when the guard ends, they get
 * the parent-death signal.
 *
 * Properties:
 * - A launch uses no template that has ended.
 * - No template and no child gets the signal of its guard while it runs.
 * - The set has one template of the program at most; what is left of others is in use by a launch.
 * - When the set is closed and the launches have ended, every template has ended, and every guard ends when the children
 *   have.
 * - Nobody who waits for a start waits for ever.
 *
 * Plants:
 * guard-ends-early: a guard ends when its template is of no use, and does not wait for the children.
 * guard-has-the-template: a guard keeps its template until it ends itself.
 * put-into-a-closed-set: a template that was started while the set was closed is put into it.
 * predecessor-kept: a successor does not end its predecessor.
 * failure-not-noted: a start that failed leaves the entry as it is.
 * used-without-owning: a launch does not own the template that it uses.
 */

#define NONE 9
#define STARTING 8
#define LATER 7
#define TEMPLATES 2     /* so many starts succeed */

byte entry = NONE;      /* or a template */
bool is_closed;
byte started;           /* templates */
byte owners[TEMPLATES]; bool alive[TEMPLATES], is_succeeded[TEMPLATES];
byte children[TEMPLATES];
byte guards, launchers = 2;
bool has_waited, are_idle;      /* templates may become idle, or old */

inline release(t) {
    atomic { owners[t]--; if :: owners[t] == 0 -> alive[t] = false :: else fi }
}

/* Takes out what the entry has; the last owner ends it, without the lock. */
#define IS_READY(e) ((e) < TEMPLATES)

proctype Child(byte t) { atomic { children[t]-- } }

/* outlive_children, and the end of the thread */
inline end_guard(t) {
    if
#ifndef GUARD_ENDS_EARLY
    :: t == NONE || !alive[t] && children[t] == 0
#else
    :: true
#endif
    fi;
    atomic { assert(t == NONE || !alive[t] && children[t] == 0); guards-- }
}

proctype Guard(bool is_first) {
    byte t = NONE, old = NONE;
    if
    :: atomic { started < TEMPLATES -> t = started; started++; owners[t] = 1; alive[t] = true };
        atomic { /* put */
            if
#ifdef PUT_INTO_A_CLOSED_SET
            :: true ->
#else
            :: !is_closed ->
#endif
                old = entry; entry = t
            :: is_closed -> old = t
            fi
        };
#ifdef GUARD_HAS_THE_TEMPLATE
        atomic { owners[t]++ };
#endif
        if
#ifdef PREDECESSOR_KEPT
        :: IS_READY(old) && old == t -> release(old)
#else
        :: IS_READY(old) -> release(old)
#endif
        :: else
        fi;
        if /* watch_over */
        :: entry != t
        :: atomic { are_idle && entry == t -> entry = NONE }; release(t) /* idle, or old */
        fi
    :: is_first -> /* it cannot be started now */
#ifndef FAILURE_NOT_NOTED
        atomic {
            old = NONE;
            if :: !is_closed -> old = entry; entry = LATER :: else fi
        };
        if :: IS_READY(old) -> release(old) :: else fi;
#endif
        skip
    :: !is_first
    fi;
    end_guard(t);
#ifdef GUARD_HAS_THE_TEMPLATE
    if :: t != NONE -> release(t) :: else fi
#endif
}

proctype Launcher(byte me) {
    byte count, t; bool was_in;
    do
    :: count == 2 - me -> break
    :: else ->
        count++;
        t = NONE;
        atomic { /* template, and start */
            if
            :: IS_READY(entry) -> t = entry;
#ifndef USED_WITHOUT_OWNING
                owners[t]++
#endif
            :: entry == LATER -> entry = NONE
            :: entry == NONE && !is_closed -> entry = STARTING; guards++; run Guard(true)
            :: else
            fi
        };
        if
        :: t == NONE /* cold */
        :: else ->
            if
            :: /* warm */
                atomic { assert(alive[t]); children[t]++; run Child(t) };
                if
                :: atomic { !is_succeeded[t] -> is_succeeded[t] = true; guards++; run Guard(false) }
                :: skip
                fi
            :: /* it has served long enough, or has died: discard */
                atomic { was_in = (entry == t); if :: was_in -> entry = NONE :: else fi };
                if :: was_in -> release(t) :: else fi
            fi;
#ifndef USED_WITHOUT_OWNING
            release(t)
#endif
        fi
    od;
    launchers--
}

/* start_and_wait */
proctype Waiter() {
    if :: entry == STARTING -> entry != STARTING :: launchers == 0 fi;
    has_waited = true
}

proctype Owner() {
    byte old; bool is_early;
    if :: is_early = true :: skip fi;
    is_early || launchers == 0 && has_waited;
    atomic { is_closed = true; old = entry; entry = NONE };
    if :: IS_READY(old) -> release(old) :: else fi
}

init {
    byte t;
    if :: are_idle = true :: skip fi;
    atomic { run Launcher(0); run Launcher(1); run Waiter(); run Owner() };
    _nr_pr == 1;
    assert(guards == 0 && entry == NONE);
    for (t : 0 .. TEMPLATES - 1) { assert(!alive[t] && children[t] == 0) }
}
