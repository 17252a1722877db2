/* A launch with ID maps, which only a process outside of the child's user namespace can write:
 * crates/forkless/src/launch/maps.rs, and await_go in crates/core/src/child.rs.
 *
 * Either the caller writes them after the clone, or the clone suspends it (CLONE_VFORK) and another thread writes them
 * when the child asks. The clone may be refused, the child may fail before it asks, and it may be killed at any step.
 * An autoreaped child frees its PID when it ends; then another process may have it.
 *
 * Properties:
 * - The child executes the program only if its maps were written.
 * - Maps are written to no other process.
 * - A child without maps ends, and is reaped.
 * - Neither the caller, nor the other thread, nor the child waits for ever.
 *
 * Plants:
 * writer-not-released: after the clone, the caller does not release a thread that no child has asked.
 * child-not-sent-away: a failure to write does not end the child.
 * maps-not-awaited: the child goes on without maps.
 * pid-not-checked: the maps are written to whatever process has the PID.
 * child-not-reaped: the child that had no maps is not reaped.
 */

#define WAIT 0
#define GO 1
#define GO_AWAY 2

bool vfork, autoreaped, stranger;   /* a stranger has the PID */
byte go; bool wanted, asked;        /* the frame: go; asked is ASK_WANTED, ASKED */
bool told_pid;                      /* the frame's pid is that of the child */
bool exists, left, reaped, mapped, executed;
bool cloned, written, wrote;

active proctype Child() {
    bool killed;
    exists || cloned;
    if :: !exists -> goto end_child :: else fi;
    if :: killed = true :: skip fi;
    if :: goto leave /* fails, or is killed, before it asks */ :: skip fi;
    if :: wanted -> asked = true :: else fi;
    if :: killed -> goto leave :: skip fi;
#ifndef MAPS_NOT_AWAITED
    if
    :: go == GO
    :: go == GO_AWAY -> goto leave
    :: killed -> goto leave
    fi;
#endif
    if :: killed -> goto leave :: skip fi;
    assert(mapped);
    executed = true;
leave:
    left = true;
    if :: autoreaped -> atomic { reaped = true; exists = false } :: else fi;
end_child: skip
}

active proctype Stranger() { end: atomic { autoreaped && reaped -> stranger = true } }

/* maps::write. The file that was opened is that of the process which has the PID then. */
inline write_maps() {
    bool to_stranger, there;
    to_stranger = false;
    if
    :: atomic { stranger -> to_stranger = true }
    :: else
    fi;
    there = !left;
#ifdef PID_NOT_CHECKED
    there = true;
#endif
    wrote = false;
    if
    :: there ->
        assert(!to_stranger);
        if :: atomic { exists || !reaped -> mapped = true; wrote = true } :: skip /* refused */ fi
    :: else
    fi;
#ifdef CHILD_NOT_SENT_AWAY
    if :: wrote -> go = GO :: else fi
#else
    if :: wrote -> go = GO :: else -> go = GO_AWAY fi
#endif
}

active proctype Writer() {
    vfork && wanted || written;
    if :: !vfork -> goto end_writer :: else fi;
    asked;
    if
    :: told_pid -> write_maps()
    :: else -> wrote = true /* nobody has asked */
    fi;
    written = true;
end_writer: skip
}

/* a child that has executed the program is reaped by its handle */
inline reap() { if :: !executed && !autoreaped -> atomic { reaped = true; exists = false } :: else fi }

active proctype Caller() {
    bool made;
    if :: vfork = true :: vfork = false fi;
    if :: autoreaped = true :: autoreaped = false fi;
    wanted = vfork;
    if
    :: vfork ->
        if :: atomic { exists = true; made = true; told_pid = true }; left :: skip /* refused */ fi;
        cloned = true;
#ifndef WRITER_NOT_RELEASED
        if
        :: !asked ->
            told_pid = false;
            asked = true
        :: else
        fi;
#endif
        written
    :: else ->
        if :: atomic { exists = true; made = true } :: skip fi;
        cloned = true;
        if :: made -> write_maps() :: else -> wrote = true fi;
        written = true
    fi;
    if
    :: made ->
        left;
#ifdef CHILD_NOT_REAPED
        if :: !wrote :: else -> reap() fi;
#else
        reap();
#endif
        assert(executed || reaped || autoreaped)
    :: else
    fi
}
