/* A launch by a zygote: crates/forkless/src/zygote/launch.rs (the caller), server.rs (the helper),
 * crates/core/src/zygote_child.rs (the child).
 *
 * The caller makes two launches with one parcel. A helper may be killed before and after each clone; then a second
 * helper, with a parcel of its own, makes the launch. A clone may fail. A child may be killed at any step, also before
 * its word is in its robust list. The attributes of caller and helper may differ, which the caller finds while the
 * helper clones. The caller may be killed at any step; the kernel then kills the helper. The kernel stores the PID of a
 * child in the parcel before the child runs, and a killed helper ends only after that.
 *
 * Properties:
 * - No two children use one parcel, and no parcel is filled while a child uses it.
 * - A launch executes its program once at most, and never with other attributes.
 * - A launch that fails has left no child.
 * - A failed child is reaped.
 * - Nobody waits for ever: not the caller, whatever happens to helper and child, and not a child whose caller has died.
 *
 * Plants:
 * pid-not-read-again: a caller that finds its helper dead does not look for a PID again.
 * killed-child-not-noticed: it waits for the word of a child that was killed before it had one.
 * cleared-too: the kernel also clears the word (CLONE_CHILD_CLEARTID), a moment after it has marked it.
 * child-not-sent-away: a child with other attributes is not told to end.
 * left-not-awaited: the caller uses a parcel again before its child has left.
 * checked-not-awaited: a child does not wait for the result of the comparison.
 * lost-caller-not-noticed: a child does not notice that its caller has died.
 * failed-clone-not-told: a helper does not report a clone that failed.
 */

#define NONE 9
#define LEFT 0
#define RUNNING 1
#define HELD 2
#define WAIT 0
#define GO 1
#define GO_AWAY 2
#define CHILDREN 3

chan requests[2] = [1] of { byte };
byte word[2], checked[2], told[2] = NONE;   /* the parcels of the two helpers */
bool used[2];                               /* by a child, in user mode */
bool killed[2], dead[2];                    /* the helpers */
byte children;                              /* so many were made */
byte launch_of[CHILDREN];
bool executed[CHILDREN], gone[CHILDREN], reaped[CHILDREN];
byte runs[2];                               /* how often a launch has executed its program */
bool has_died, has_ended;                   /* the caller */

proctype Child(byte c, h; bool is_killed) {
    bool is_robust;
    atomic { assert(!used[h]); used[h] = true };
    if :: is_killed -> goto leave :: skip fi;
    is_robust = true;
    if :: is_killed -> goto leave :: skip fi;
    word[h] = HELD;
    if :: is_killed -> goto leave :: skip fi;
    if
    :: checked[h] == GO
    :: checked[h] == GO_AWAY -> goto leave
#ifdef CHECKED_NOT_AWAITED
    :: true
#endif
#ifndef LOST_CALLER_NOT_NOTICED
    :: has_died -> goto leave
#endif
    :: is_killed -> goto leave
    fi;
    if :: goto leave /* fails */ :: skip fi;
    /* the caller has said GO, if it lives */
    atomic { assert(checked[h] == GO || has_died); executed[c] = true; runs[launch_of[c]]++; assert(runs[launch_of[c]] == 1) };
leave: /* the kernel */
    used[h] = false;
    if
    :: atomic { is_robust && word[h] == HELD -> word[h] = LEFT }
    :: !(is_robust && word[h] == HELD)
    fi;
#ifdef CLEARED_TOO
    word[h] = LEFT;
#endif
    gone[c] = !executed[c]
}

proctype Helper(byte h) {
    byte launch;
    do
    :: killed[h] || has_ended || has_died -> break
    :: requests[h] ? launch ->
        if :: killed[h] -> break :: else fi;
        if
        :: atomic { children < CHILDREN ->
                launch_of[children] = launch; told[h] = children;
                if :: run Child(children, h, false) :: run Child(children, h, true) fi;
                children++ }
        :: skip;
#ifndef FAILED_CLONE_NOT_TOLD
            word[h] = LEFT
#endif
        fi
    od;
    dead[h] = true
}

/* an OOM killer, say: the first helper only */
proctype Killer() { if :: killed[0] = true :: skip fi }

#define DEATH if :: may_die -> has_died = true; goto over :: skip fi

proctype Caller() {
    byte launch, h, c; bool differs, may_die;
    if :: may_die = true :: skip fi;
    do
    :: launch == 2 -> break
    :: else ->
again:
        atomic { assert(!used[h]); told[h] = NONE; checked[h] = WAIT; word[h] = RUNNING };
        DEATH;
        if /* send */
        :: atomic { dead[h] -> word[h] = LEFT }; goto died
        :: atomic { !dead[h] -> requests[h] ! launch }
        fi;
        DEATH;
        if /* compare_meanwhile */
        :: differs = false; checked[h] = GO
        :: differs = true;
#ifndef CHILD_NOT_SENT_AWAY
            checked[h] = GO_AWAY
#endif
        fi;
        DEATH;
        do /* await_child */
        :: word[h] == LEFT -> break
        :: word[h] != LEFT && told[h] != NONE -> break
        :: dead[h] ->
#ifndef PID_NOT_READ_AGAIN
            if :: told[h] != NONE -> break :: else fi;
#endif
            word[h] = LEFT; goto died
        od;
        c = told[h];
        if
        :: c == NONE -> goto next /* the clone has failed */
        :: else
        fi;
        DEATH;
#ifdef LEFT_NOT_AWAITED
        reaped[c] = true; goto next;
#endif
        do /* wait for the word; wait_while */
        :: word[h] == LEFT -> break
#ifndef KILLED_CHILD_NOT_NOTICED
        :: gone[c] -> word[h] = LEFT
#endif
        od;
        DEATH;
        if
        :: executed[c] -> assert(!differs)
        :: else -> gone[c]; reaped[c] = true
        fi;
        if :: differs && h == 0 -> h = 1; run Helper(1); goto again :: else fi;
        goto next;
died:   /* with another helper, if there is none yet */
        if
        :: h == 0 -> h = 1; run Helper(1); goto again
        :: else
        fi;
next:   launch++
    od;
    has_ended = true;
over: skip
}

init {
    byte c;
    atomic { run Helper(0); run Caller(); run Killer() };
    _nr_pr == 1;
    for (c : 0 .. CHILDREN - 1) { assert(c >= children || executed[c] || reaped[c] || has_died) }
}
