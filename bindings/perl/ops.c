/* perl's built-in system, qx and open of pipes, without fork.
 *
 * Where a lexical hint is set, the op checker gives the compiled op another function. So all forms of the syntax keep their meaning,
 * and other code is not affected. The functions do what perlfunc says of "system", "readpipe" and "open".
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#define PERL_NO_GET_CONTEXT
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "EXTERN.h"
#include "perl.h"
#include "XSUB.h"

#include "line.h"
#include "ops.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SYSTEM = 1, READPIPE = 2, OPEN = 4 };

static Perl_check_t check_system_before, check_readpipe_before, check_open_before;
static int everywhere;

/* Memory that perl frees at the end of the statement. */
static void *room(pTHX_ size_t size) {
    SV *held = sv_2mortal(newSV(size));
    return SvPVX(held);
}

char *ops_bytes(pTHX_ SV *value) {
    STRLEN size;
    const char *text = SvPV_const(value, size);
    if (memchr(text, '\0', size) != NULL) {
        errno = EINVAL;
        return NULL;
    }
    return SvPVX(newSVpvn_flags(text, size, SVs_TEMP));
}

static char *bytes_or_warning(pTHX_ SV *value) {
    char *bytes = ops_bytes(aTHX_ value);
    if (bytes == NULL) {
        Perl_ck_warner(aTHX_ packWARN(WARN_SYSCALLS), "Invalid \\0 character in a command: %s\\0...", SvPV_nolen_const(value));
        errno = EINVAL;
    }
    return bytes;
}

static int ready_line(pTHX_ struct start *how, SV *line) {
    char *text = bytes_or_warning(aTHX_ line);
    if (text == NULL) return OPS_BAD;
    char **words = room(aTHX_ (strlen(text) / 2 + 5) * sizeof *words);
    /* As in perl, the shell gets the line without leading blanks. */
    SV *whole = newSVpvn_flags(text, strlen(text), SVs_TEMP);
    int kind = line_split(text, words);
    /* If standard output is closed, standard error cannot be redirected to it: let a shell report that. */
    if (kind == LINE_MERGED && how->streams[1] == STREAM_KEPT && fcntl(1, F_GETFD) < 0) kind = LINE_SHELL;
    if (kind == LINE_MERGED) how->streams[2] = STREAM_AS_OUT;
    if (kind == LINE_SHELL) {
        how->program = "/bin/sh";
        words[0] = (char *)"sh";
        words[1] = (char *)"-c";
        words[2] = SvPVX(whole) + strspn(text, " \t\n\v\f\r");
        words[3] = NULL;
    }
    how->argv = words;
    return words[0] == NULL ? OPS_NOTHING : OPS_READY;
}

int ops_ready(pTHX_ struct start *how, SV *program, SSize_t first, SSize_t count) {
    how->ignores_fpe = PL_sigfpe_saved == SIG_IGN;
    if (program == NULL && count == 1) return ready_line(aTHX_ how, PL_stack_base[first]);
    char **argv = room(aTHX_ (count + 2) * sizeof *argv);
    for (SSize_t n = 0; n < count; n++) {
        /* Converting an argument to a string may call perl code, which may reallocate the stack. */
        argv[n] = bytes_or_warning(aTHX_ PL_stack_base[first + n]);
        if (argv[n] == NULL) return OPS_BAD;
    }
    argv[count] = NULL;
    if (count == 0 && program != NULL) {
        /* The kernel turns an empty argv into one empty string. */
        argv[0] = (char *)"";
        argv[1] = NULL;
    }
    how->argv = argv;
    if (program != NULL && (how->program = bytes_or_warning(aTHX_ program)) == NULL) return OPS_BAD;
    return OPS_READY;
}

pid_t ops_start(pTHX_ const struct start *how) {
    PERL_FLUSHALL_FOR_CHILD;
    pid_t pid = start(how);
    if (pid > 0) return pid;
    const char *name = how->program != NULL ? how->program : how->argv[0];
    errno = -pid;
    if (ckWARN(WARN_EXEC)) {
        Perl_warner(aTHX_ packWARN(WARN_EXEC), "Can't exec \"%s\": %s", name != NULL ? name : "", Strerror(-pid));
        errno = -pid;
    }
    return -1;
}

int ops_wait(pTHX_ pid_t pid) {
    int status;
    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR) return -1;
        PERL_ASYNC_CHECK();
    }
    return status;
}

/* While system waits, perl ignores SIGINT and SIGQUIT, which a terminal sends to the program too, and does not call its SIGCHLD
 * handler. */
struct waiting {
    sigset_t mask;
    struct sigaction interrupt, quit;
};

static void begin_waiting(struct waiting *waiting) {
    struct sigaction ignore;
    sigset_t child;
    Zero(&ignore, 1, struct sigaction);
    ignore.sa_handler = SIG_IGN;
    sigaction(SIGINT, &ignore, &waiting->interrupt);
    sigaction(SIGQUIT, &ignore, &waiting->quit);
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    pthread_sigmask(SIG_BLOCK, &child, &waiting->mask);
}

/* Registered as a destructor, because a signal handler may die. */
static void end_waiting(pTHX_ void *place) {
    struct waiting *waiting = place;
    sigaction(SIGINT, &waiting->interrupt, NULL);
    sigaction(SIGQUIT, &waiting->quit, NULL);
    pthread_sigmask(SIG_SETMASK, &waiting->mask, NULL);
    Safefree(waiting);
}

/* Run the program until it has ended. Returns the status, or -1 and errno. */
static int run(pTHX_ struct start *how) {
    struct waiting *waiting;
    Newxz(waiting, 1, struct waiting);
    begin_waiting(waiting);
    SAVEDESTRUCTOR_X(end_waiting, waiting);
    how->mask = &waiting->mask;
    how->interrupt = &waiting->interrupt;
    how->quit = &waiting->quit;
    pid_t pid = ops_start(aTHX_ how);
    return pid < 0 ? -1 : ops_wait(aTHX_ pid);
}

/* From perl 5.38 on, perl's own functions run when taint checks are on. */
#if PERL_VERSION_LT(5, 37, 0)
#define HAS_TAINT 1
static void check_taint(pTHX_ const char *what, SSize_t first, SSize_t count) {
    if (!TAINTING_get) return;
    TAINT_ENV();
    for (SSize_t n = 0; n < count && !TAINT_get; n++) (void)SvPV_nolen_const(PL_stack_base[first + n]);
    TAINT_PROPER(what);
}

/* perl looks at the command of readpipe before it looks at the environment. */
static void check_taint_of_readpipe(pTHX_ SV *command) {
    if (!TAINTING_get) return;
    (void)SvPV_nolen_const(command);
    TAINT_PROPER("``");
    TAINT_ENV();
}
#else
#define HAS_TAINT 0
#define check_taint(...) NOOP
#define check_taint_of_readpipe(...) NOOP
#endif

static OP *pp_system_forkless(pTHX) {
    if (!HAS_TAINT && TAINTING_get) return PL_ppaddr[OP_SYSTEM](aTHX);
    dSP; dMARK; dORIGMARK; dTARGET;
    SSize_t first = ORIGMARK + 1 - PL_stack_base, count = SP - ORIGMARK;
    struct start how = START_INIT;
    int status = -1;
    check_taint(aTHX_ "system", first, count);
    ENTER;
    SAVETMPS;
    SV *program = PL_op->op_flags & OPf_STACKED ? PL_stack_base[first] : NULL;
    switch (ops_ready(aTHX_ &how, program, first + (program != NULL), count - (program != NULL))) {
    case OPS_READY: status = run(aTHX_ &how); break;
    /* As the forked child of perl, which exits with 255 if there is nothing to execute. */
    case OPS_NOTHING: status = 255 << 8; break;
    }
    int saved = errno;
    FREETMPS;
    LEAVE;
    STATUS_NATIVE_CHILD_SET(status);
    SP = PL_stack_base + first - 1;
    XPUSHi(STATUS_CURRENT);
    PUTBACK;
    errno = saved;
    PERL_UNUSED_VAR(MARK);
    return NORMAL;
}

/* Make a pipe in which perl's end has the lower number, as perl's own does: a program that has closed STDOUT and opens a pipe gets
 * that pipe at descriptor 1. */
static int make_pipe(int reads, int *ours, int *theirs) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0) return -1;
    *ours = ends[!reads];
    *theirs = ends[reads];
    if (*ours < *theirs) return 0;
    int moved = fcntl(*theirs, F_DUPFD_CLOEXEC, *ours), is_moved = moved >= 0 && dup3(*ours, *theirs, O_CLOEXEC) >= 0;
    const int saved = errno;
    close(*ours);
    *ours = *theirs;
    *theirs = moved;
    if (is_moved) return 0;
    close(*ours);
    if (moved >= 0) close(moved);
    errno = saved;
    return -1;
}

/* The open ends of a pipe. A destructor closes them, also when a warning or a layer dies. */
struct ends {
    PerlIO *stream;
    int ours, theirs; /* -1: closed, or owned by the stream */
};

static void close_ends(pTHX_ void *place) {
    struct ends *ends = place;
    const int saved = errno;
    if (ends->stream != NULL) PerlIO_close(ends->stream);
    if (ends->ours >= 0) close(ends->ours);
    if (ends->theirs >= 0) close(ends->theirs);
    Safefree(ends);
    errno = saved;
}

/* The ends of a new pipe, closed at LEAVE. NULL and errno on failure. */
static struct ends *new_ends(pTHX_ int reads) {
    struct ends *ends;
    Newx(ends, 1, struct ends);
    *ends = (struct ends){ NULL, -1, -1 };
    SAVEDESTRUCTOR_X(close_ends, ends);
    return make_pipe(reads, &ends->ours, &ends->theirs) < 0 ? NULL : ends;
}

/* Start the program with its end of the pipe at descriptor fd. Returns the pid, or -1 and errno. */
static pid_t start_at(pTHX_ struct start *how, struct ends *ends, int fd) {
    how->streams[fd] = ends->theirs;
    pid_t pid = ops_start(aTHX_ how);
    const int saved = errno;
    close(ends->theirs);
    ends->theirs = -1;
    errno = saved;
    return pid;
}

/* Start the command with a stream from its standard output, which is closed at LEAVE. NULL and errno if it cannot be started. */
static struct ends *open_line(pTHX_ struct start *how, pid_t *pid) {
    struct ends *ends = new_ends(aTHX_ 1);
    if (ends == NULL || (*pid = start_at(aTHX_ how, ends, 1)) < 0) return NULL;
    const int is_raw = PL_op->op_private & OPpOPEN_IN_RAW, is_text = PL_op->op_private & OPpOPEN_IN_CRLF;
    const char *mode = is_raw ? "rb" : is_text ? "rt" : "r";
    ends->stream = PerlIO_fdopen(ends->ours, mode);
    if (ends->stream != NULL) ends->ours = -1;
    SV *layers = PL_curcop->cop_hints & HINT_LEXICAL_IO_IN ? cop_hints_fetch_pvs(PL_curcop, "open<", 0) : NULL;
    if (layers != NULL && SvOK(layers) && SvCUR(layers) > 0) PerlIO_apply_layers(aTHX_ ends->stream, mode, SvPV_nolen(layers));
    return ends;
}

/* Read the stream to its end: as lines in list context, without a result in void context. */
static void read_stream(pTHX_ PerlIO *stream, SV *target, U8 context) {
    if (context == G_VOID) {
        char waste[4096];
        while (PerlIO_read(stream, waste, sizeof waste) > 0) NOOP;
    } else if (context == G_SCALAR) {
        ENTER;
        SAVEGENERICSV(PL_rs);
        PL_rs = newSV(0);
        SvPVCLEAR(target);
        while (sv_gets(target, stream, SvCUR(target)) != NULL) NOOP;
        LEAVE;
        SvTAINTED_on(target);
    } else {
        dSP;
        for (;;) {
            SV *line = sv_newmortal();
            if (sv_gets(line, stream, 0) == NULL) break;
            SvTAINTED_on(line);
            XPUSHs(line);
            PUTBACK;
        }
    }
}

static OP *pp_readpipe_forkless(pTHX) {
    if (!HAS_TAINT && TAINTING_get) return PL_ppaddr[OP_BACKTICK](aTHX);
    dSP; dTARGET;
    const U8 context = GIMME_V;
    struct start how = START_INIT;
    struct ends *ends = NULL;
    pid_t pid = -1;
    int status = -1, saved;
    check_taint_of_readpipe(aTHX_ TOPs);
    ENTER;
    how.streams[1] = STREAM_AS_OUT; /* It must be open, even if perl's is closed. */
    int is_ready = ops_ready(aTHX_ &how, NULL, SP - PL_stack_base, 1);
    SPAGAIN;
    SP--;
    PUTBACK;
    if (is_ready == OPS_READY) ends = open_line(aTHX_ &how, &pid);
    if (is_ready == OPS_NOTHING) {
        status = 1 << 8;
        errno = 0;
        if (context == G_SCALAR) SvPVCLEAR(TARG);
    }
    if (ends != NULL) {
        read_stream(aTHX_ ends->stream, TARG, context);
        PerlIO *open = ends->stream;
        ends->stream = NULL;
        PerlIO_close(open);
        status = ops_wait(aTHX_ pid);
        if (status > 0) errno = 0;
    }
    saved = errno;
    LEAVE;
    STATUS_NATIVE_CHILD_SET(status);
    if (ends != NULL) TAINT;
    SPAGAIN;
    if (context == G_SCALAR) XPUSHs(ends != NULL || is_ready == OPS_NOTHING ? TARG : &PL_sv_undef);
    PUTBACK;
    errno = saved;
    return NORMAL;
}

/* ---- open of pipes ---- */

void ops_own(pTHX_ IO *io, pid_t pid) {
    IoTYPE(io) = IoTYPE_PIPE;
    SV **place = av_fetch(PL_fdpid, PerlIO_fileno(IoIFP(io)), TRUE);
    SvUPGRADE(*place, SVt_IV);
    SvIV_set(*place, pid);
    PL_forkprocess = pid;
}

/* Open perl's end as a stream with these layers. Returns false and errno, after perl's warning, if a layer is unknown. */
static int make_stream(pTHX_ struct ends *ends, int reads, const char *layers) {
    const char *mode = reads ? "r" : "w";
    const int fd = ends->ours, before = errno;
    ends->stream = PerlIO_fdopen(fd, mode);
    if (ends->stream == NULL) return 0;
    ends->ours = -1;
    /* perl lets programs inherit 0 to 2 ($^F). The program at the other end of the pipe must not: it would wait for its own end of
     * file. */
    if (fd <= PL_maxsysfd) fcntl(fd, F_SETFD, FD_CLOEXEC);
    errno = before;
    return *layers == '\0' || PerlIO_apply_layers(aTHX_ ends->stream, mode, layers) == 0;
}

PerlIO *ops_piped(pTHX_ struct start *how, int is_ready, int reads, const char *layers, pid_t *pid) {
    /* As the forked child of perl, which exits with 1 if there is nothing to execute. */
    static char *const nothing[] = { (char *)"sh", (char *)"-c", (char *)"exit 1", NULL };
    PerlIO *stream = NULL;
    if (is_ready == OPS_BAD) return NULL;
    if (is_ready == OPS_NOTHING) {
        how->program = "/bin/sh";
        how->argv = nothing;
    }
    ENTER;
    struct ends *ends = new_ends(aTHX_ reads);
    if (ends != NULL && make_stream(aTHX_ ends, reads, layers) && (*pid = start_at(aTHX_ how, ends, reads)) > 0) {
        stream = ends->stream;
        ends->stream = NULL;
    }
    LEAVE;
    return stream;
}

/* The arguments of an open of a pipe. */
struct piped {
    int reads;
    SV *line;           /* the command, if mode and command are one string */
    const char *layers; /* layers in the mode */
};

/* The string value of an argument. A tied variable or an overloaded object is evaluated once: the result replaces it on the stack.
 * NULL for undef. */
static const char *text_at(pTHX_ SSize_t at, STRLEN *size) {
    SV *value = PL_stack_base[at];
    if (SvGMAGICAL(value) || SvAMAGIC(value)) {
        value = sv_mortalcopy(value);
        if (SvAMAGIC(value)) {
            const char *text = SvPV_const(value, *size);
            value = newSVpvn_flags(text, *size, SVs_TEMP | (SvUTF8(value) ? SVf_UTF8 : 0));
        }
        PL_stack_base[at] = value;
    }
    return SvOK(value) ? SvPV_const(value, *size) : NULL;
}

/* open HANDLE, MODE, COMMAND. False without a command or with the command "-", which asks for a fork: perl's own open handles those. */
static int is_pipe_by_mode(pTHX_ SSize_t first, SSize_t count, struct piped *what) {
    STRLEN size;
    const char *mode = text_at(aTHX_ first + 1, &size);
    if (mode == NULL) return 0;
    while (isSPACE(*mode)) mode++;
    what->reads = strncmp(mode, "-|", 2) == 0;
    if (!what->reads && strncmp(mode, "|-", 2) != 0) return 0;
    mode += 2;
    while (isSPACE(*mode)) mode++;
    what->layers = SvPVX(newSVpvn_flags(mode, strlen(mode), SVs_TEMP));
    const char *command = text_at(aTHX_ first + 2, &size);
    return command != NULL && *command != '\0' && (count > 3 || strNE(command, "-"));
}

/* open HANDLE, "COMMAND |", and "| COMMAND", which takes precedence. */
static int is_pipe_by_line(pTHX_ SSize_t first, struct piped *what) {
    STRLEN size;
    const char *text = text_at(aTHX_ first + 1, &size);
    if (text == NULL) return 0;
    while (size > 0 && isSPACE(*text)) text++, size--;
    while (size > 0 && isSPACE(text[size - 1])) size--;
    if (size < 2) return 0;
    const int is_written = *text == '|', is_read = text[size - 1] == '|', is_both = is_written && is_read;
    /* A file name that ends in a bar. */
    if (!is_written && (!is_read || strchr("<>", text[*text == '+']) != NULL)) return 0;
    if (is_written) text++, size--;
    while (size > 0 && isSPACE(*text)) text++, size--;
    if (is_read) size--;
    while (!is_written && size > 0 && isSPACE(text[size - 1])) size--;
    if ((size == 0 && !is_both) || (size == 1 && *text == '-')) return 0;
    if (is_both) Perl_ck_warner(aTHX_ packWARN(WARN_PIPE), "Can't open bidirectional pipe");
    what->reads = !is_written;
    what->layers = "";
    what->line = newSVpvn_flags(text, size, SVs_TEMP | (SvUTF8(PL_stack_base[first + 1]) ? SVf_UTF8 : 0));
    return 1;
}

static int is_pipe(pTHX_ SSize_t first, struct piped *what) {
    const SSize_t count = PL_stack_sp - PL_stack_base - first + 1;
    SV *handle = PL_stack_base[first];
    IO *io = isGV_with_GP(handle) ? GvIOp((GV *)handle) : NULL;
    if (TAINTING_get || !isGV_with_GP(handle)) return 0;
    if (io != NULL && SvRMAGICAL((SV *)io) && mg_find((SV *)io, PERL_MAGIC_tiedscalar) != NULL) return 0;
    if (count == 1) {
        /* open HANDLE: mode and command are in the variable of the handle's name. */
        dSP;
        SV *named = GvSVn((GV *)handle);
        XPUSHs(named);
        PUTBACK;
    }
    return count > 2 ? is_pipe_by_mode(aTHX_ first, count, what) : is_pipe_by_line(aTHX_ first, what);
}

/* Call perl's open of a descriptor. It leaves its result on the stack. With -1 it fails, and closes the file that the handle had,
 * unless that is one of 0 to 2 ($^F). Warnings are disabled: perl would warn about a pipe that has a former number of STDIN or STDOUT. */
static OP *open_fd(pTHX_ GV *gv, const char *mode, int fd) {
    dSP;
    PUSHMARK(SP);
    EXTEND(SP, 3);
    PUSHs((SV *)gv);
    mPUSHp(mode, strlen(mode));
    mPUSHi(fd);
    PUTBACK;
    COP quiet = *PL_curcop;
    quiet.cop_warnings = pWARN_NONE;
    ENTER;
    SAVEVPTR(PL_curcop);
    PL_curcop = &quiet;
    OP *next = PL_ppaddr[OP_OPEN](aTHX);
    LEAVE;
    return next;
}

/* Whether perl's open would replace the file below the handle and keep the descriptor's number: 0 to 2, $^F. */
static int is_kept(pTHX_ GV *gv) {
    IO *io = GvIOp(gv);
    if (io == NULL || IoIFP(io) == NULL || IoTYPE(io) == IoTYPE_STD) return 0;
    const int fd = PerlIO_fileno(IoIFP(io));
    return fd >= 0 && fd <= PL_maxsysfd;
}

/* Make the stream the handle's. Returns false if perl refuses it. The result of perl's open is on the stack. */
static int attach(pTHX_ GV *gv, PerlIO *stream, int reads) {
    const int keeps = is_kept(aTHX_ gv);
    const char *mode = keeps ? (reads ? "<&:unix" : ">&:unix") : (reads ? "<&=:unix" : ">&=:unix");
    open_fd(aTHX_ gv, mode, PerlIO_fileno(stream));
    const int is_open = SvTRUE(*PL_stack_sp);
    IO *io = GvIOp(gv);
    if (is_open && !keeps) {
        /* The stream that perl has opened for the descriptor has none of the layers. */
        PerlIO *plain = IoIFP(io);
        IoIFP(io) = stream;
        if (IoOFP(io) != NULL) IoOFP(io) = stream;
        stream = plain;
    }
    PerlIO_close(stream);
    return is_open;
}

/* perl's own open takes the end of the pipe, and then the handle is marked as one of a pipe to a program. */
static OP *pp_open_forkless(pTHX) {
    const SSize_t mark = TOPMARK;
    struct piped what = { 0, NULL, NULL };
    if (!is_pipe(aTHX_ mark + 1, &what)) return PL_ppaddr[OP_OPEN](aTHX);
    GV *gv = (GV *)PL_stack_base[mark + 1];
    struct start how = START_INIT;
    pid_t pid = -1;
    SSize_t first = mark + 3, count = PL_stack_sp - PL_stack_base - mark - 2;
    if (what.line != NULL) {
        PL_stack_base[mark + 2] = what.line;
        first = mark + 2;
        count = 1;
    }
    (void)POPMARK;
    /* Close the handle's former file first: if that is a pipe, this waits for its program. */
    if (GvIOp(gv) != NULL && IoIFP(GvIOp(gv)) != NULL && !is_kept(aTHX_ gv)) open_fd(aTHX_ gv, "<&=", -1);
    how.streams[what.reads] = STREAM_AS_OUT;
    PerlIO *stream = ops_piped(aTHX_ &how, ops_ready(aTHX_ &how, NULL, first, count), what.reads, what.layers, &pid);
    const int saved = errno;
    if (stream == NULL) open_fd(aTHX_ gv, "<&=", -1);
    else if (attach(aTHX_ gv, stream, what.reads)) ops_own(aTHX_ GvIOp(gv), pid);
    else pid = -1;
    dSP;
    SP = PL_stack_base + mark;
    XPUSHs(pid > 0 ? sv_2mortal(newSViv(pid)) : &PL_sv_undef);
    PUTBACK;
    if (stream == NULL) errno = saved;
    return NORMAL;
}

static int is_wanted(pTHX_ int which, const char *hint) {
    /* False after "no Forkless". */
    SV **found = PL_hints & HINT_LOCALIZE_HH ? hv_fetch(GvHV(PL_hintgv), hint, strlen(hint), 0) : NULL;
    return found != NULL ? SvTRUE(*found) : (everywhere & which) != 0;
}

static OP *check_system(pTHX_ OP *op) {
    op = check_system_before(aTHX_ op);
    if (op->op_type == OP_SYSTEM && is_wanted(aTHX_ SYSTEM, "Forkless/system")) op->op_ppaddr = pp_system_forkless;
    return op;
}

static OP *check_readpipe(pTHX_ OP *op) {
    op = check_readpipe_before(aTHX_ op);
    if (op->op_type == OP_BACKTICK && is_wanted(aTHX_ READPIPE, "Forkless/readpipe")) op->op_ppaddr = pp_readpipe_forkless;
    return op;
}

static OP *check_open(pTHX_ OP *op) {
    op = check_open_before(aTHX_ op);
    if (op->op_type == OP_OPEN && is_wanted(aTHX_ OPEN, "Forkless/open")) op->op_ppaddr = pp_open_forkless;
    return op;
}

void ops_boot(pTHX) {
    wrap_op_checker(OP_OPEN, check_open, &check_open_before);
    wrap_op_checker(OP_SYSTEM, check_system, &check_system_before);
    wrap_op_checker(OP_BACKTICK, check_readpipe, &check_readpipe_before);
}

void ops_everywhere(int which) {
    everywhere |= which;
}
