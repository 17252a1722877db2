/* A parent-death signal, for a caller that is not the first thread of its process:
 * crates/forkless/src/launch/creator.rs, and parent_death_signal in crates/core/src/process.rs.
 *
 * A thread of its own clones the child. The kernel sends the signal when that thread ends, and gives the child to another
 * thread of the process, or, if there is none, to init (forget_original_parent in kernel/exit.c). A change of IDs clears
 * the child's setting (commit_creds in kernel/cred.c). The process may be killed at any step, and the child may end at
 * any.
 *
 * Properties:
 * - When the process has ended, no program runs that has not got the signal.
 * - While the process lives, the child gets no such signal.
 * - The caller continues, and the thread ends when its child has ended, or was not made.
 *
 * Plants:
 * parent-not-checked: the child does not look whether the parent has died before it asked for the signal.
 * thread-ends-early: the thread ends when it has cloned.
 * answer-not-sent: the caller does not learn that the thread has cloned.
 * ids-after-the-signal: the child asks for the signal first, and changes its IDs then.
 */

bool process_ended, thread_ended, caller_ended, made, answered;
bool asks, signalled, init_is_parent, runs, child_ended;    /* the child */

/* The thread that has cloned ends: forget_original_parent */
inline forget_children() {
    atomic {
        if
        :: made && !child_ended ->
            init_is_parent = process_ended;
            if :: asks -> signalled = true; assert(process_ended) :: else fi
        :: else
        fi;
        thread_ended = true
    }
}

#define DEATH :: process_ended -> forget_children(); goto over

proctype Thread() {
    if
    DEATH
    :: !process_ended -> if :: atomic { made = true; run Child() } :: skip /* refused */ fi
    fi;
#ifndef ANSWER_NOT_SENT
    if DEATH :: !process_ended -> answered = true fi;
#endif
#ifndef THREAD_ENDS_EARLY
    if DEATH :: !made || child_ended fi; /* outlive_children */
#endif
    forget_children();
over: skip
}

proctype Child() {
    bool has_ids;
    if :: goto leave :: skip fi;
#ifndef IDS_AFTER_THE_SIGNAL
    if :: asks = false; has_ids = true :: skip fi;
#endif
    asks = true;
#ifndef PARENT_NOT_CHECKED
    if :: init_is_parent -> goto leave :: !init_is_parent fi;
#endif
#ifdef IDS_AFTER_THE_SIGNAL
    if :: asks = false; has_ids = true :: skip fi;
#endif
    runs = true;
    if :: signalled :: skip /* ends by itself */ fi;
leave:
    atomic { child_ended = true; runs = false }
}

proctype Caller() {
    run Thread();
    if :: answered :: process_ended fi;
    caller_ended = true
}

/* A kill of the whole process */
proctype Killer() { if :: process_ended = true :: skip fi }

/* A program that runs although the process has ended, its signal not sent */
active proctype Watch() {
end: atomic { process_ended && thread_ended && runs && !signalled -> assert(false) }
}

init {
    atomic { run Caller(); run Killer() };
    caller_ended && thread_ended && (!made || child_ended)
}
