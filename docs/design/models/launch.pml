/* A launch by clone: the pool of stacks (crates/forkless/src/launch/stack.rs), the futex word of the frame, and the
 * descriptors that a child takes from its caller (watch.rs beside it, and crates/core/src/fds.rs).
 *
 * One thread makes two launches of any kind, another one makes one with descriptors. The pool has room for one stack. A
 * clone may be refused. A child may be killed or stopped at any step. The caller waits for the exec, or only until its
 * descriptors have been taken, or drops the handle of a launch without descriptors at once. The kernel clears the word
 * when the child uses the memory no more.
 *
 * Properties:
 * - No two children use one stack, and no stack is unmapped or filled while a child uses it.
 * - A caller closes its descriptors only when the child has its own.
 * - The reason of a failure is that of this launch, and none is lost.
 * - No stack is lost, but one of a child that still runs when the pool is full.
 * - No caller waits for ever, whatever happens to the child.
 *
 * Plants:
 * stack-without-check: a stack from the pool is taken though its child has not left.
 * running-stack-unmapped: a stack that finds no room is unmapped though its child has not left.
 * failed-clone-not-cancelled: a failed clone leaves the word as it is.
 * taken-too-soon: the child says that it has the descriptors before it takes them.
 * taken-not-awaited: a launch with descriptors returns at once.
 * stopped-child-left: a caller that waits does not continue a stopped child.
 * errno-of-before: the frame keeps the errno of the launch before.
 */

#define STACKS 3
#define NONE 9
#define LEFT 0
#define RUNNING 1
#define TOOK_FDS 2

byte pool = NONE;                       /* room for one stack */
byte mapped;                            /* the stacks 0 .. mapped-1 exist */
bool unmapped[STACKS], leaked[STACKS];  /* but for these; not in the pool, because a child uses it */
bool used[STACKS];                      /* by a child, in user mode */
bool stopped[STACKS];
byte word[STACKS];
bool reason[STACKS];                     /* in the frame */
bool has_failed[STACKS];                /* the truth about the child that used the stack last */
bool open[2];                           /* the descriptors of the two callers */
byte ended;

#define STEP(action) if :: atomic { !stopped[s] -> action } :: killed -> goto leave fi

proctype Child(byte s, me; bool takes) {
    bool killed;
    atomic { assert(!used[s] && !unmapped[s]); used[s] = true; has_failed[s] = false;
        /* it may be killed, at any step */
        if :: me == 0 -> stopped[s] = true :: killed = true :: skip fi };
    if
    :: takes ->
#ifdef TAKEN_TOO_SOON
        STEP(word[s] = TOOK_FDS);
        STEP(assert(open[me]))
#else
        STEP(assert(open[me]));
        STEP(word[s] = TOOK_FDS)
#endif
    :: else
    fi;
    if
    :: atomic { !stopped[s] -> reason[s] = true; has_failed[s] = true }
    :: !stopped[s] /* exec */
    :: killed
    fi;
leave: /* the kernel: first the child uses the memory no more */
    atomic { assert(!unmapped[s]); used[s] = false; stopped[s] = false };
    word[s] = LEFT
}

/* Stack::keep */
#define KEEP if \
    :: atomic { pool == NONE -> pool = s } \
    :: atomic { pool != NONE -> skip }; \
        if \
        :: CAN_UNMAP -> atomic { assert(!used[s]); unmapped[s] = true } \
        :: else -> leaked[s] = true \
        fi \
    fi
#ifdef RUNNING_STACK_UNMAPPED
#define CAN_UNMAP true
#else
#define CAN_UNMAP word[s] == LEFT
#endif

proctype Caller(byte me) {
    byte s, count; bool takes, waits;
    do
    :: count == 2 - me -> break
    :: else ->
        atomic { count++;
            if :: takes = true :: me == 0 -> takes = false fi;
            if :: me == 0 -> waits = true :: waits = false fi };
        /* Stack::take */
        s = NONE;
        if
        :: atomic { pool != NONE -> s = pool; pool = NONE };
#ifndef STACK_WITHOUT_CHECK
            if :: word[s] == LEFT :: else -> KEEP; s = NONE fi
#endif
        :: atomic { pool == NONE }
        fi;
        if :: s == NONE -> atomic { s = mapped; mapped++ } :: else fi;
        /* begin */
        atomic { assert(!used[s]);
#ifndef ERRNO_OF_BEFORE
            reason[s] = false
#endif
        };
        atomic { open[me] = true; word[s] = RUNNING };
        if
        :: atomic { run Child(s, me, takes); }
            do /* wait_for */
            :: waits && word[s] == LEFT -> assert(reason[s] == has_failed[s]); break
#ifdef TAKEN_NOT_AWAITED
            :: !waits -> break
#else
            :: !waits && (!takes || word[s] != RUNNING) -> break
#endif
            /* spawn() of a stopped child returns, if its descriptors have been taken */
            :: waits && stopped[s] && (!takes || word[s] != RUNNING) -> break
#ifndef STOPPED_CHILD_LEFT
            :: atomic { takes && stopped[s] -> stopped[s] = false }
#endif
            od
        :: /* clone is refused */
#ifndef FAILED_CLONE_NOT_CANCELLED
            word[s] = LEFT;
#endif
            skip
        fi;
        open[me] = false;
        KEEP
    od;
    ended++
}

init {
    byte s;
    atomic { run Caller(0); run Caller(1) };
    ended == 2;
    /* somebody continues the children that were left stopped */
    do
    :: atomic { stopped[0] -> stopped[0] = false }
    :: atomic { stopped[1] -> stopped[1] = false }
    :: atomic { stopped[2] -> stopped[2] = false }
    :: _nr_pr == 1 -> break
    od;
    for (s : 0 .. STACKS - 1) {
        assert(s >= mapped || word[s] == LEFT);
        assert(s >= mapped || unmapped[s] || leaked[s] || pool == s)
    }
}
