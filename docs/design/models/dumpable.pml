/* The caller's memory while children with other IDs share it: crates/forkless/src/launch/dumpable.rs.
 *
 * Two threads of the caller, the first one among them, launch children that change their IDs. Meanwhile a third thread
 * may change the IDs of the process, as setuid(3) of libc does: one thread after the other, at any moment. A fourth may
 * call set_dumpable. The kernel makes the memory non-dumpable at each change of IDs, a child's too (commit_creds in
 * kernel/cred.c). It reports that a child has left a moment before it takes the memory away (exec_mmap in fs/exec.c).
 *
 * Properties:
 * - While a child with other IDs has the memory, the memory is non-dumpable.
 * - When no launch is under way, the memory is as the caller had it, or as set_dumpable has made it.
 * - It stays non-dumpable if the process, or a launching thread, has changed its IDs.
 * - Every launch ends.
 *
 * Plants:
 * memory-not-awaited: a launch ends when the child has left, though it still has the memory.
 * each-launch-restores: each launch restores the state, not only the last one.
 * state-noted-again: each launch notes the state, not only the first one.
 * compared-once: the rights are not compared again after the state was restored.
 * not-compared: the rights are not compared at all.
 * no-taint: a launch that is not the last one keeps its change of rights to itself.
 * busy-left: the launch that has restored the state does not say so.
 * set-at-once: set_dumpable(true) takes effect though launches are under way.
 */

#define LAUNCHES 2

bool dumpable = true;           /* of the memory: the kernel's */
bool fewer[2];                  /* the rights of the two threads: fewer than at the start */
bool noted;                     /* RIGHTS: those of the first thread */
bool busy; bool state; byte launches;   /* NOTE: changed only together */
bool other_ids[LAUNCHES];       /* the child has other IDs, and the memory */
bool left[LAUNCHES], gone[LAUNCHES];
bool launching[LAUNCHES];
byte ended;
bool changed, closed, opened;   /* what the other threads have done */

proctype Child(byte me) {
    if
    :: atomic { dumpable = false; other_ids[me] = true }
    :: skip /* it fails before */
    fi;
    left[me] = true;
    atomic { other_ids[me] = false; gone[me] = true }
}

#define RESTORE(to) atomic { \
    dumpable = to; assert(!dumpable || !other_ids[0] && !other_ids[1]) }
/* has_fewer_rights: two reads */
#define COMPARE(now) now = (rights != fewer[me]); now = (now || noted != fewer[0])

proctype Launch(byte me) {
    bool rights, differs, own; byte count;
    rights = fewer[me];
    launching[me] = true;
    do /* begin */
    :: atomic { !busy && launches == 0 -> busy = true };
        noted = fewer[0];
        own = dumpable;
        atomic { state = own; launches = 1; busy = false };
        break
    :: atomic { !busy && launches > 0 ->
#ifdef STATE_NOTED_AGAIN
        state = dumpable;
#endif
        launches++ }; break
    od;
    run Child(me);
    left[me];
#ifndef MEMORY_NOT_AWAITED
    gone[me];
#endif
    launching[me] = false;
    do /* drop */
    :: atomic { !busy -> count = launches; own = state };
        if
#ifdef EACH_LAUNCH_RESTORES
        :: count >= 1 ->
#else
        :: count == 1 ->
#endif
            atomic { if :: !busy && launches == count && state == own -> busy = true :: else -> goto again fi };
            differs = false;
#ifndef NOT_COMPARED
            COMPARE(differs);
#endif
            if
            :: differs -> dumpable = false
            :: else ->
                if
                :: dumpable != own ->
                    RESTORE(own);
#if !defined(COMPARED_ONCE) && !defined(NOT_COMPARED)
                    COMPARE(differs);
                    if :: differs -> dumpable = false :: else fi
#endif
                :: else
                fi
            fi;
#ifdef BUSY_LEFT
            atomic { state = false; launches = count - 1 };
#else
            atomic { state = false; launches = count - 1; busy = false };
#endif
            break
#ifndef EACH_LAUNCH_RESTORES
        :: count > 1 ->
            differs = false;
#ifndef NO_TAINT
            if :: own -> COMPARE(differs) :: else fi;
#endif
            atomic { if :: !busy && launches == count && state == own -> busy = differs :: else -> goto again fi;
                if :: !differs -> launches = count - 1 :: else fi };
            if
            :: differs ->
                dumpable = false;
                atomic { state = false; launches = count - 1; busy = false }
            :: else
            fi;
            break
#endif
        fi;
again:  skip
    od;
    ended++
}

/* setuid(3) by another thread, or a change of the second thread alone while it launches */
proctype Change() {
    if
    :: atomic { fewer[0] = true; dumpable = false; changed = true };
        atomic { fewer[1] = true; dumpable = false }
    :: atomic { fewer[1] = true; dumpable = false; changed = true };
        atomic { fewer[0] = true; dumpable = false }
    :: atomic { launching[1] -> fewer[1] = true; dumpable = false; changed = true }
    :: skip
    fi;
    ended++
}

/* set_dumpable(false), or that and set_dumpable(true) */
proctype Set() {
    byte count; bool to; byte calls;
    if :: calls = 0 :: calls = 1 :: calls = 2 fi;
    do
    :: calls == 0 -> break
    :: else ->
        atomic { !busy -> busy = true; count = launches };
        if
#ifdef SET_AT_ONCE
        :: false
#else
        :: to && count > 0
#endif
        :: else -> RESTORE(to)
        fi;
        atomic { state = to; busy = false; closed = !to; opened = to };
        to = true; calls--
    od;
    ended++
}

/* While a child has other IDs */
active proctype Watch() { end: atomic { dumpable && (other_ids[0] || other_ids[1]) -> assert(false) } }

init {
    atomic { run Launch(0); run Launch(1); run Change(); run Set() };
    ended == 4;
    assert(!busy && launches == 0);
    /* set_dumpable(true) is the caller's own decision */
    assert(dumpable || changed || closed);
    assert(!dumpable || !changed || opened);
    assert(!dumpable || !closed)
}
