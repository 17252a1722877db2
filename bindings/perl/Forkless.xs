/* The functions of forkless.h, for lib/Forkless.pm and the modules below it. No perl code runs in a child. Longer than other files: XS
 * is one file per library, and each function is a few lines of glue.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#define PERL_NO_GET_CONTEXT
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "EXTERN.h"
#include "perl.h"
#include "XSUB.h"

#include "fast.h"
#include "ops.h"
#include "setting.h"
#include "start.h"

#include <dirent.h>
#include <fcntl.h>
#include <forkless.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

/* ---- Errors ---- */

static int is_of_ours(pTHX_ const COP *cop) {
    const char *package = CopSTASHPV(cop);
    return package != NULL && strncmp(package, "Forkless", 8) == 0 && (package[8] == '\0' || package[8] == ':');
}

/* Report errors and warnings, perl's included, at the line that called the module, until the end of the C function. */
static void at_callers_line(pTHX) {
    const COP *cop = PL_curcop;
    const PERL_CONTEXT *frame;
    for (I32 level = 0; is_of_ours(aTHX_ cop) && (frame = caller_cx(level, NULL)) != NULL; level++) cop = frame->blk_oldcop;
    SAVEVPTR(PL_curcop);
    PL_curcop = (COP *)cop;
}

/* Set $! and $Forkless::error. Without a message of the library, the message is `what` and the errno's text. */
static void failed(pTHX_ int answer, const forkless_error *error, const char *what) {
    HV *hash = newHV();
    SV *place = get_sv("Forkless::error", GV_ADD), *object = sv_2mortal(newRV_noinc((SV *)hash));
    SV *message = error != NULL ? newSVpv(error->message, 0) : newSVpvf("%s: %s", what, Strerror(-answer));
    (void)hv_stores(hash, "errno", newSViv(-answer));
    (void)hv_stores(hash, "step", newSViv(error != NULL ? error->step : 0));
    (void)hv_stores(hash, "message", message);
    sv_bless(object, gv_stashpvs("Forkless::Error", GV_ADD));
    sv_setsv(place, object);
    errno = -answer;
}

/* ---- Handles: the pointer is in ext magic that only this file can attach, so a forged object has none ---- */

static int forget_copy(pTHX_ MAGIC *magic, CLONE_PARAMS *params) {
    /* A new thread gets a copy of the object. The handle still belongs to the old thread. */
    magic->mg_ptr = NULL;
    return 0;
}

#define HANDLE(name, release)                                                    \
    static int free_##name(pTHX_ SV *sv, MAGIC *magic) {                         \
        if (magic->mg_ptr != NULL) release((forkless_##name *)magic->mg_ptr);    \
        magic->mg_ptr = NULL;                                                    \
        return 0;                                                                \
    }                                                                            \
    static MGVTBL name##_magic = { .svt_free = free_##name, .svt_dup = forget_copy };

HANDLE(command, forkless_command_free)
HANDLE(child, forkless_child_free)
HANDLE(prepared, forkless_prepared_free)
HANDLE(waitset, forkless_waitset_free)
HANDLE(warm, forkless_warm_free)
HANDLE(sandbox, forkless_sandbox_free)
HANDLE(cgroup, forkless_cgroup_free)
HANDLE(pty, forkless_pty_free)
HANDLE(pipeline, forkless_pipeline_free)

static void put(pTHX_ SV *object, MGVTBL *kind, void *pointer) {
    sv_magicext(SvRV(object), NULL, PERL_MAGIC_ext, kind, pointer, 0)->mg_flags |= MGf_DUP;
}

static SV *make(pTHX_ const char *class, MGVTBL *kind, void *pointer) {
    SV *object = newRV_noinc((SV *)newHV());
    sv_bless(object, gv_stashpv(class, GV_ADD));
    put(aTHX_ object, kind, pointer);
    return object;
}

static MAGIC *magic_of(pTHX_ SV *object, MGVTBL *kind, const char *what) {
    MAGIC *magic = SvROK(object) && SvTYPE(SvRV(object)) >= SVt_PVMG ? mg_findext(SvRV(object), PERL_MAGIC_ext, kind) : NULL;
    if (magic == NULL || magic->mg_ptr == NULL) at_callers_line(aTHX);
    if (magic == NULL) croak("not a %s", what);
    if (magic->mg_ptr == NULL) croak("this %s belongs to another thread or to a wait set, or was released or removed", what);
    return magic;
}

#define COMMAND(object) ((forkless_command *)magic_of(aTHX_ object, &command_magic, "Forkless::Command")->mg_ptr)
#define CHILD(object) ((forkless_child *)magic_of(aTHX_ object, &child_magic, "Forkless::Child")->mg_ptr)
#define PREPARED(object) ((forkless_prepared *)magic_of(aTHX_ object, &prepared_magic, "Forkless::Prepared")->mg_ptr)
#define WARM(object) ((forkless_warm *)magic_of(aTHX_ object, &warm_magic, "Forkless::Warm")->mg_ptr)
#define SANDBOX(object) ((forkless_sandbox *)magic_of(aTHX_ object, &sandbox_magic, "Forkless::Sandbox")->mg_ptr)
#define CGROUP(object) ((forkless_cgroup *)magic_of(aTHX_ object, &cgroup_magic, "Forkless::Cgroup")->mg_ptr)
#define PTY(object) ((forkless_pty *)magic_of(aTHX_ object, &pty_magic, "Forkless::Pty")->mg_ptr)
#define PIPELINE(object) ((forkless_pipeline *)magic_of(aTHX_ object, &pipeline_magic, "Forkless::Pipeline")->mg_ptr)
#define WAITSET(object) ((forkless_waitset *)magic_of(aTHX_ object, &waitset_magic, "Forkless::WaitSet")->mg_ptr)

/* ---- Perl values to C ---- */

/* Refuse a string that perl would take for 0, with a warning at most. */
static void check_number(pTHX_ SV *value) {
    if (!SvPOK(value) || SvNIOK(value) || looks_like_number(value)) return;
    at_callers_line(aTHX);
    croak("expected a number: %" SVf, SVfARG(value));
}

/* The descriptor that a number or a handle stands for; -1 for a closed handle. */
static int fd_of(pTHX_ SV *value) {
    SvGETMAGIC(value);
    if (!SvROK(value) && !isGV_with_GP(value) && looks_like_number(value)) {
        IV number = SvIV(value);
        return number < 0 || number > I32_MAX ? -1 : (int)number;
    }
    if (SvROK(value) && !isGV_with_GP(SvRV(value)) && SvTYPE(SvRV(value)) != SVt_PVIO) croak("expected a handle or the number of a descriptor");
    IO *io = sv_2io(value);
    if (SvRMAGICAL((SV *)io) && mg_find((SV *)io, PERL_MAGIC_tiedscalar) != NULL)
        croak("a tied handle has no file descriptor");
    if (IoIFP(io) == NULL) return IoDIRP(io) != NULL ? dirfd(IoDIRP(io)) : -1;
    int fd = PerlIO_fileno(IoIFP(io));
    if (fd < 0) croak("an in-memory handle has no file descriptor");
    return fd;
}

static int signal_of(pTHX_ SV *value) {
    SvGETMAGIC(value);
    if (looks_like_number(value)) return (int)SvIV(value);
    const char *name = SvPV_nolen(value);
    int number = whichsig(strncmp(name, "SIG", 3) == 0 ? name + 3 : name);
    if (number < 0) croak("no such signal: %s", name);
    return number;
}

/* Seconds to milliseconds. -1 for undef. */
static int64_t ms_of(pTHX_ SV *value) {
    if (value == NULL || !SvOK(value)) return -1;
    check_number(aTHX_ value);
    NV seconds = SvNV(value);
    if (!(seconds > 0)) return 0;
    return seconds > 1e12 ? -1 : (int64_t)(seconds * 1000 + 0.999);
}

/* A list of strings that ends in a null pointer; freed at the end of the statement. NULL and errno if a string contains a NUL. */
static char **texts_of(pTHX_ SV *value) {
    SvGETMAGIC(value);
    if (!SvROK(value) || SvTYPE(SvRV(value)) != SVt_PVAV) croak("expected a reference to an array");
    AV *array = (AV *)SvRV(value);
    SSize_t count = av_count(array);
    char **texts = (char **)SvPVX(sv_2mortal(newSV((count + 1) * sizeof *texts)));
    for (SSize_t n = 0; n < count; n++) {
        SV **one = av_fetch(array, n, 0);
        texts[n] = one != NULL ? ops_bytes(aTHX_ *one) : (char *)"";
        if (texts[n] == NULL) return NULL;
    }
    texts[count] = NULL;
    return texts;
}

static int *numbers_of(pTHX_ SV *value, size_t *count) {
    SvGETMAGIC(value);
    if (!SvROK(value) || SvTYPE(SvRV(value)) != SVt_PVAV) croak("expected a reference to an array");
    AV *array = (AV *)SvRV(value);
    *count = av_count(array);
    int *numbers = (int *)SvPVX(sv_2mortal(newSV((*count + 1) * sizeof *numbers)));
    for (size_t n = 0; n < *count; n++) {
        SV **one = av_fetch(array, n, 0);
        if (one != NULL) check_number(aTHX_ *one);
        numbers[n] = one != NULL ? (int)SvUV(*one) : 0;
    }
    return numbers;
}

/* Convert an argument of a setting. Returns false and errno if it is invalid. */
static int argument_of(pTHX_ char kind, SV *value, struct argument *a) {
    STRLEN size;
    switch (kind) {
    case 'f': a->number = fd_of(aTHX_ value); return 1;
    case 'g': a->number = signal_of(aTHX_ value); return 1;
    case 'L': return (a->texts = texts_of(aTHX_ value)) != NULL;
    case 'N': a->numbers = numbers_of(aTHX_ value, &a->count); return 1;
    case 'B': a->text = SvPVbyte(value, size); a->count = size; return 1;
    case 'S': if (!SvOK(value)) return 1; /* FALLTHROUGH */
    case 's': return (a->text = ops_bytes(aTHX_ value)) != NULL;
    case 'U': check_number(aTHX_ value); a->bits = SvUV(value); return 1;
    default: break;
    }
    check_number(aTHX_ value);
    IV number = SvIV(value);
    if (number < (kind == 'u' ? 0 : I32_MIN) || number > (kind == 'u' ? (IV)U32_MAX : I32_MAX)) {
        errno = EINVAL;
        return 0;
    }
    a->number = number;
    return 1;
}

static const struct setting *setting_of(const char *name) {
    for (const struct setting *one = settings; one->name != NULL; one++)
        if (strcmp(one->name, name) == 0) return one;
    return NULL;
}

/* The same for Proc::FastSpawn's functions: bytes, from an array or, for an environment, also from a hash. */
static char **bytes_of_list(pTHX_ SV *value, int is_environment) {
    AV *array;
    SvGETMAGIC(value);
    if (is_environment && SvROK(value) && SvTYPE(SvRV(value)) == SVt_PVHV) {
        HV *hash = (HV *)SvRV(value);
        array = (AV *)sv_2mortal((SV *)newAV());
        hv_iterinit(hash);
        for (HE *entry; (entry = hv_iternext(hash)) != NULL;)
            av_push(array, newSVpvf("%" SVf "=%" SVf, SVfARG(HeSVKEY_force(entry)), SVfARG(hv_iterval(hash, entry))));
    } else if (SvROK(value) && SvTYPE(SvRV(value)) == SVt_PVAV) {
        array = (AV *)SvRV(value);
    } else {
        croak("expected a reference to an array of argument/environment strings");
    }
    SSize_t count = av_count(array);
    char **texts = (char **)SvPVX(sv_2mortal(newSV((count + 2) * sizeof *texts)));
    for (SSize_t n = 0; n < count; n++) {
        SV **one = av_fetch(array, n, 0);
        STRLEN size = 0;
        texts[n] = one != NULL ? SvPVbyte(*one, size) : (char *)"";
        if (strlen(texts[n]) != size) {
            errno = EINVAL;
            return NULL;
        }
    }
    texts[count] = NULL;
    return texts;
}

/* One per interpreter. */
typedef struct { struct fast last; } my_cxt_t;
#define MY_CXT_KEY "Forkless::_guts" XS_VERSION
START_MY_CXT

static void end_fast(pTHX_ void *nothing) {
    dMY_CXT;
    fast_free(&MY_CXT.last);
}

/* Returns a pid, or a negative errno. */
static pid_t fastspawn(pTHX_ int is_searched, SV *path, SV *argv, SV *envp) {
    SvGETMAGIC(envp);
    const int has_envp = SvOK(envp);
    STRLEN size;
    const char *file = SvPVbyte(path, size);
    char **args = bytes_of_list(aTHX_ argv, 0), **environment = has_envp ? bytes_of_list(aTHX_ envp, 1) : NULL;
    if (args == NULL || (has_envp && environment == NULL) || strlen(file) != size) return -EINVAL;
    if (args[0] == NULL) {
        /* The kernel turns an empty argv into one empty string. */
        args[0] = (char *)"";
        args[1] = NULL;
    }
    if (is_searched) return start_in_path(file, args, environment);
    if (has_envp) return forkless_spawn(file, args, environment);
    dMY_CXT;
    return fast_spawn(&MY_CXT.last, file, args);
}

/* ---- C values to Perl ---- */

#define STORE(hash, name, value) (void)hv_store(hash, name, strlen(name), value, 0)

static SV *usage_hash(pTHX_ const forkless_usage *usage) {
    HV *hash = newHV();
    STORE(hash, "wall", newSVnv(usage->wall_ns / 1e9));
    STORE(hash, "user", newSVnv(usage->user_ns / 1e9));
    STORE(hash, "system", newSVnv(usage->system_ns / 1e9));
    STORE(hash, "max_rss_kib", newSVuv(usage->max_rss_kib));
    STORE(hash, "minor_faults", newSVuv(usage->minor_faults));
    STORE(hash, "major_faults", newSVuv(usage->major_faults));
    STORE(hash, "blocks_in", newSVuv(usage->blocks_in));
    STORE(hash, "blocks_out", newSVuv(usage->blocks_out));
    STORE(hash, "voluntary_switches", newSVuv(usage->voluntary_switches));
    STORE(hash, "involuntary_switches", newSVuv(usage->involuntary_switches));
    return newRV_noinc((SV *)hash);
}

static SV *events_hash(pTHX_ const forkless_limit_events *events) {
    HV *hash = newHV();
    STORE(hash, "oom_kills", newSVuv(events->oom_kills));
    STORE(hash, "memory_max", newSVuv(events->memory_max));
    STORE(hash, "tasks_max", newSVuv(events->tasks_max));
    return newRV_noinc((SV *)hash);
}

static SV *output_object(pTHX_ forkless_output *output) {
    HV *hash = newHV();
    STORE(hash, "status", newSViv(output->status));
    SV *out = newSVpvn(output->out, output->out_size), *err = newSVpvn(output->err, output->err_size);
    SvTAINTED_on(out);
    SvTAINTED_on(err);
    STORE(hash, "stdout", out);
    STORE(hash, "stderr", err);
    STORE(hash, "timed_out", newSVsv(boolSV(output->flags & FORKLESS_OUTPUT_TIMED_OUT)));
    STORE(hash, "held_open", newSVsv(boolSV(output->flags & FORKLESS_OUTPUT_HELD_OPEN)));
    STORE(hash, "stdout_cut", newSVuv(output->out_cut));
    STORE(hash, "stderr_cut", newSVuv(output->err_cut));
    STORE(hash, "input_left", newSVuv(output->input_left));
    STORE(hash, "usage", usage_hash(aTHX_ &output->usage));
    STORE(hash, "limit_events", events_hash(aTHX_ &output->limit_events));
    forkless_output_free(output);
    return sv_bless(newRV_noinc((SV *)hash), gv_stashpvs("Forkless::Output", GV_ADD));
}

static int is_of(pTHX_ SV *object, MGVTBL *kind) {
    return SvROK(object) && SvTYPE(SvRV(object)) >= SVt_PVMG && mg_findext(SvRV(object), PERL_MAGIC_ext, kind) != NULL;
}

/* The number of programs of a pipeline, and a place for their statuses, which perl frees. */
static int room_of(pTHX_ SV *pipeline, int **statuses) {
    int count = forkless_pipeline_count(PIPELINE(pipeline));
    SV *room = sv_2mortal(newSV((count + 1) * sizeof(int)));
    *statuses = (int *)SvPVX(room);
    return count;
}

/* A handle as of open on a pipe: close waits for the program. */
static SV *stream_object(pTHX_ PerlIO *stream, int is_reader, pid_t pid) {
    GV *glob = (GV *)newSV(0);
    gv_init_pvn(glob, gv_stashpvs("Forkless", GV_ADD), "$pipe", 5, 0);
    IO *io = GvIOn(glob);
    IoIFP(io) = stream;
    if (!is_reader) IoOFP(io) = stream;
    ops_own(aTHX_ io, pid);
    return newRV_noinc((SV *)glob);
}

/* ---- Waiting; perl's signal handlers run in the meantime ---- */

static int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Wait until the descriptor is readable, a signal arrives or the time is over. Without a descriptor, sleep for a moment. */
static void wait_readable(int fd, int64_t end) {
    const int moment = 20;
    int64_t left = end < 0 ? I32_MAX : end - now_ms();
    int limit = left < 0 ? 0 : left > I32_MAX ? I32_MAX : (int)left;
    struct pollfd one = { fd, POLLIN, 0 };
    if (fd < 0) poll(NULL, 0, limit < moment ? limit : moment);
    else poll(&one, 1, limit);
}

/* As forkless_child_wait_timeout. */
static int wait_child(pTHX_ SV *object, int64_t limit_ms, int *status, forkless_error *error) {
    int64_t end = limit_ms < 0 ? -1 : now_ms() + limit_ms;
    for (;;) {
        PERL_ASYNC_CHECK();
        /* Looked up each time: a signal handler may have released the child, or moved it to a wait set. */
        forkless_child *child = CHILD(object);
        int answer = forkless_child_try_wait(child, status, error);
        if (answer != 0) return answer;
        if (end >= 0 && now_ms() >= end) return 0;
        wait_readable(forkless_child_pidfd(child), end);
    }
}

/* Turn the library's result into a perl value: true, or undef and the error. */
#define ANSWER(answer, error, what)                          \
    STMT_START {                                             \
        int answer_ = (answer);                              \
        if (answer_ < 0) {                                   \
            failed(aTHX_ answer_, error, what);              \
            XSRETURN_UNDEF;                                  \
        }                                                    \
    } STMT_END

MODULE = Forkless    PACKAGE = Forkless

PROTOTYPES: DISABLE

BOOT:
    {
        MY_CXT_INIT;
        Zero(&MY_CXT, 1, my_cxt_t);
        call_atexit(end_fast, NULL);
        ops_boot(aTHX);
    }

void
CLONE(...)
CODE:
    {
        MY_CXT_CLONE;
        Zero(&MY_CXT, 1, my_cxt_t);
        call_atexit(end_fast, NULL);
    }
    PERL_UNUSED_VAR(items);

void
_croak(SV *message)
CODE:
    at_callers_line(aTHX);
    croak("%" SVf, SVfARG(message));

void
_everywhere(int which)
CODE:
    ops_everywhere(which);

const char *
library_version()
CODE:
    RETVAL = forkless_version();
OUTPUT:
    RETVAL

SV *
step_words(int step)
PREINIT:
    char text[200];
CODE:
    if (forkless_step_words(step, text, sizeof text) < 0) XSRETURN_UNDEF;
    RETVAL = newSVpv(text, 0);
OUTPUT:
    RETVAL

UV
reap_orphans()
CODE:
    RETVAL = forkless_reap_orphans();
OUTPUT:
    RETVAL

void
settings()
PPCODE:
    for (const struct setting *one = settings; one->name != NULL; one++) mXPUSHp(one->name, strlen(one->name));

void
_launch_all(...)
PPCODE:
    forkless_prepared **all = (forkless_prepared **)SvPVX(sv_2mortal(newSV((items + 1) * sizeof *all)));
    forkless_child **children = (forkless_child **)SvPVX(sv_2mortal(newSV((items + 1) * sizeof *children)));
    int *errors = (int *)SvPVX(sv_2mortal(newSV((items + 1) * sizeof *errors)));
    for (int n = 0; n < items; n++) all[n] = PREPARED(ST(n));
    PERL_FLUSHALL_FOR_CHILD;
    ANSWER(forkless_launch_all(all, items, children, errors), NULL, "launch_all");
    EXTEND(SP, items);
    for (int n = 0; n < items; n++) {
        if (errors[n] < 0) failed(aTHX_ errors[n], NULL, "launch_all");
        ST(n) = errors[n] < 0 ? &PL_sv_undef : sv_2mortal(make(aTHX_ "Forkless::Child", &child_magic, children[n]));
    }
    XSRETURN(items);

void
_start(int in, int out, int err, ...)
PREINIT:
    struct start how = START_INIT;
    pid_t pid = -1;
PPCODE:
    /* Run what perl's exec would, with these streams. */
    how.streams[0] = in;
    how.streams[1] = out;
    how.streams[2] = err;
    switch (ops_ready(aTHX_ &how, NULL, ax + 3, items - 3)) {
    case OPS_READY: pid = ops_start(aTHX_ &how); break;
    case OPS_NOTHING: errno = ENOENT; break;
    }
    if (pid < 0) XSRETURN_UNDEF;
    XSRETURN_IV(pid);

void
_popen(int is_reader, ...)
PREINIT:
    struct start how = START_INIT;
    pid_t pid = -1;
PPCODE:
    at_callers_line(aTHX);
    if (items > 1 && SvOK(ST(1)) && !SvROK(ST(1)) && *SvPV_nolen_const(ST(1)) == '\0') {
        Perl_ck_warner(aTHX_ packWARN(WARN_PIPE), "Missing command in piped open");
        errno = EPIPE;
        XSRETURN_UNDEF;
    }
    how.streams[is_reader] = STREAM_AS_OUT;
    PerlIO *stream = ops_piped(aTHX_ &how, ops_ready(aTHX_ &how, NULL, ax + 1, items - 1), is_reader, "", &pid);
    if (stream == NULL) XSRETURN_UNDEF;
    EXTEND(SP, 2);
    mPUSHs(stream_object(aTHX_ stream, is_reader, pid));
    mPUSHi(pid);

MODULE = Forkless    PACKAGE = Forkless::FastSpawn

PROTOTYPES: DISABLE

void
spawn(SV *path, SV *argv, SV *envp = &PL_sv_undef)
PROTOTYPE: $$;$
ALIAS:
    spawnp = 1
PPCODE:
    pid_t pid = fastspawn(aTHX_ ix, path, argv, envp);
    if (pid < 0) {
        errno = -pid;
        XSRETURN_UNDEF;
    }
    XSRETURN_IV(pid);

void
fd_inherit(int fd, int on = 1)
PROTOTYPE: $;$
PPCODE:
    int answer = forkless_fd_inherit(fd, on);
    if (answer < 0) errno = -answer;

MODULE = Forkless    PACKAGE = Forkless::Command

PROTOTYPES: DISABLE

SV *
_new(const char *class, SV *program)
PREINIT:
    forkless_command *command;
CODE:
    at_callers_line(aTHX);
    char *name = ops_bytes(aTHX_ program);
    ANSWER(name != NULL ? forkless_command_new(name, &command) : -EINVAL, NULL, "program");
    RETVAL = make(aTHX_ class, &command_magic, command);
OUTPUT:
    RETVAL

void
_kinds(const char *name)
PPCODE:
    const struct setting *setting = setting_of(name);
    if (setting == NULL) XSRETURN_UNDEF;
    mXPUSHp(setting->kinds, strlen(setting->kinds));

void
_flags(const char *mode)
PPCODE:
    /* The flags of open(2) for perl's mode. */
    int flags = strEQ(mode, "<")    ? O_RDONLY
                : strEQ(mode, ">")  ? O_WRONLY | O_CREAT | O_TRUNC
                : strEQ(mode, ">>") ? O_WRONLY | O_CREAT | O_APPEND
                : strEQ(mode, "+<") ? O_RDWR
                : strEQ(mode, "+>") ? O_RDWR | O_CREAT | O_TRUNC
                                    : -1;
    if (flags < 0) XSRETURN_UNDEF;
    mXPUSHi(flags);

void
_set(SV *self, const char *name, ...)
PREINIT:
    struct argument arguments[5];
PPCODE:
    forkless_command *command = COMMAND(self);
    const struct setting *setting = setting_of(name);
    at_callers_line(aTHX);
    if (setting == NULL) croak("no such setting: %s", name);
    const size_t count = strlen(setting->kinds);
    if ((size_t)items - 2 != count) croak("%s takes %zu argument%s, not %d", name, count, count == 1 ? "" : "s", (int)items - 2);
    Zero(arguments, 5, struct argument);
    for (size_t n = 0; n < count; n++)
        if (!argument_of(aTHX_ setting->kinds[n], ST(2 + n), &arguments[n])) ANSWER(-errno, NULL, name);
    ANSWER(setting_apply(setting, command, arguments), NULL, name);
    XSRETURN_YES;

void
_warm(SV *self, SV *warm)
PPCODE:
    ANSWER(forkless_command_warm(COMMAND(self), WARM(warm)), NULL, "warm");
    XSRETURN_YES;

void
_sandbox(SV *self, SV *sandbox)
PPCODE:
    ANSWER(forkless_command_sandbox(COMMAND(self), SANDBOX(sandbox)), NULL, "sandbox");
    XSRETURN_YES;

void
_pty(SV *self, SV *pty)
PPCODE:
    ANSWER(forkless_command_pty(COMMAND(self), PTY(pty)), NULL, "pty");
    XSRETURN_YES;

void
_call(SV *self, unsigned number, int result, ...)
PREINIT:
    forkless_call_arg args[6];
PPCODE:
    /* A number; a reference to bytes; or a reference to a reference to the index of a variable. */
    forkless_command *command = COMMAND(self);
    at_callers_line(aTHX);
    if (items - 3 > 6) croak("a system call takes at most 6 arguments");
    for (int n = 0; n < items - 3; n++) {
        SV *value = ST(3 + n);
        STRLEN size = 0;
        Zero(&args[n], 1, forkless_call_arg);
        if (!SvROK(value)) {
            args[n].kind = FORKLESS_CALL_NUMBER;
            args[n].number = SvUV(value);
        } else if (SvROK(SvRV(value))) {
            args[n].kind = FORKLESS_CALL_VARIABLE;
            args[n].number = SvUV(SvRV(SvRV(value)));
        } else {
            args[n].kind = FORKLESS_CALL_BYTES;
            args[n].bytes = SvPVbyte(SvRV(value), size);
            args[n].number = size;
        }
    }
    ANSWER(forkless_command_call(command, number, args, items - 3, result), NULL, "call");
    XSRETURN_YES;

SV *
_spawn(SV *self)
ALIAS:
    _launch = 1
PREINIT:
    forkless_child *child;
    forkless_error error;
CODE:
    forkless_command *command = COMMAND(self);
    PERL_FLUSHALL_FOR_CHILD;
    ANSWER(ix ? forkless_command_launch(command, &child, &error) : forkless_command_spawn(command, &child, &error), &error, NULL);
    RETVAL = make(aTHX_ "Forkless::Child", &child_magic, child);
OUTPUT:
    RETVAL

SV *
_prepare(SV *self)
PREINIT:
    forkless_prepared *prepared;
    forkless_error error;
CODE:
    ANSWER(forkless_command_prepare(COMMAND(self), &prepared, &error), &error, NULL);
    RETVAL = make(aTHX_ "Forkless::Prepared", &prepared_magic, prepared);
OUTPUT:
    RETVAL

SV *
_capture(SV *self, int flags, int signal, SV *input, UV limit, SV *timeout, SV *grace, SV *linger)
PREINIT:
    forkless_capture how = FORKLESS_CAPTURE_INIT;
    forkless_output *output;
    forkless_error error;
    STRLEN size = 0;
CODE:
    at_callers_line(aTHX);
    how.flags = flags;
    how.signal = signal;
    how.input = SvOK(input) ? SvPVbyte(input, size) : NULL;
    how.input_size = size;
    how.limit = limit;
    how.timeout_ms = ms_of(aTHX_ timeout);
    how.grace_ms = ms_of(aTHX_ grace);
    how.linger_ms = ms_of(aTHX_ linger);
    PERL_FLUSHALL_FOR_CHILD;
    AV *statuses = NULL;
    if (is_of(aTHX_ self, &prepared_magic)) {
        ANSWER(forkless_prepared_capture(PREPARED(self), &how, &output, &error), &error, NULL);
    } else if (is_of(aTHX_ self, &pipeline_magic)) {
        int *all, count = room_of(aTHX_ self, &all);
        ANSWER(forkless_pipeline_capture(PIPELINE(self), &how, count, all, &output, &error), &error, NULL);
        statuses = newAV();
        for (int n = 0; n < count; n++) av_push(statuses, newSViv(all[n]));
    } else {
        ANSWER(forkless_command_capture(COMMAND(self), &how, &output, &error), &error, NULL);
    }
    RETVAL = output_object(aTHX_ output);
    if (statuses != NULL) (void)hv_stores((HV *)SvRV(RETVAL), "statuses", newRV_noinc((SV *)statuses));
OUTPUT:
    RETVAL

MODULE = Forkless    PACKAGE = Forkless::Prepared

PROTOTYPES: DISABLE

SV *
_spawn(SV *self)
ALIAS:
    _launch = 1
PREINIT:
    forkless_child *child;
    forkless_error error;
CODE:
    forkless_prepared *prepared = PREPARED(self);
    PERL_FLUSHALL_FOR_CHILD;
    ANSWER(ix ? forkless_prepared_launch(prepared, &child, &error) : forkless_prepared_spawn(prepared, &child, &error), &error,
           NULL);
    RETVAL = make(aTHX_ "Forkless::Child", &child_magic, child);
OUTPUT:
    RETVAL

SV *
steps(SV *self)
CODE:
    forkless_prepared *prepared = PREPARED(self);
    int size = forkless_prepared_steps(prepared, NULL, 0);
    ANSWER(size, NULL, "steps");
    RETVAL = newSV(size + 1);
    forkless_prepared_steps(prepared, SvPVX(RETVAL), size + 1);
    SvPOK_only(RETVAL);
    SvCUR_set(RETVAL, size);
OUTPUT:
    RETVAL

MODULE = Forkless    PACKAGE = Forkless::Child

PROTOTYPES: DISABLE

int
signal_number(SV *signal)
CODE:
    at_callers_line(aTHX);
    RETVAL = signal_of(aTHX_ signal);
OUTPUT:
    RETVAL

IV
_pid(SV *self)
CODE:
    RETVAL = forkless_child_pid(CHILD(self));
OUTPUT:
    RETVAL

void
_number(SV *self, int argument = 0)
ALIAS:
    _pidfd = 0
    _take_fd = 1
    _take_handed_back = 2
    _signal = 3
    _signal_group = 4
    _kill_on_free = 5
PPCODE:
    forkless_child *child = CHILD(self);
    int answer = ix == 0   ? forkless_child_pidfd(child)
                 : ix == 1 ? forkless_child_take_fd(child, argument)
                 : ix == 2 ? forkless_child_take_handed_back(child)
                 : ix == 3 ? forkless_child_signal(child, argument)
                 : ix == 4 ? forkless_child_signal_group(child, argument)
                           : forkless_child_kill_on_free(child, argument);
    ANSWER(answer, NULL, GvNAME(CvGV(cv)) + 1);
    mXPUSHi(answer);

void
_wait(SV *self, SV *timeout)
PREINIT:
    forkless_error error;
    int status;
PPCODE:
    /* undef: an error. Empty list: the timeout expired. */
    int answer = wait_child(aTHX_ self, ms_of(aTHX_ timeout), &status, &error);
    ANSWER(answer, &error, NULL);
    if (answer > 0) mXPUSHi(status);
    else errno = ETIMEDOUT;

void
_wait_change(SV *self, SV *timeout)
ALIAS:
    _wait_exec = 1
PREINIT:
    forkless_error error;
    int status = 1;
PPCODE:
    /* In slices: the library's calls continue after a signal, and its handler has to run. */
    int64_t ms = ms_of(aTHX_ timeout), end = ms < 0 ? -1 : now_ms() + ms;
    int answer;
    do {
        PERL_ASYNC_CHECK();
        forkless_child *child = CHILD(self);
        int64_t slice = end < 0 || end - now_ms() > 50 ? 50 : end - now_ms();
        if (slice < 0) slice = 0;
        answer = ix ? forkless_child_wait_exec(child, slice, &error) : forkless_child_wait_change(child, slice, &status, &error);
    } while (answer == 0 && (end < 0 || now_ms() < end));
    ANSWER(answer, &error, NULL);
    if (answer > 0) mXPUSHi(status);
    else errno = ETIMEDOUT;

void
_terminate(SV *self, int signal, SV *grace)
ALIAS:
    _terminate_group = 1
PREINIT:
    forkless_error error;
    int status;
PPCODE:
    forkless_child *child = CHILD(self);
    int64_t ms = ms_of(aTHX_ grace);
    int answer = ix ? forkless_child_terminate_group(child, signal, ms, &status, &error)
                    : forkless_child_terminate(child, signal, ms, &status, &error);
    ANSWER(answer, &error, NULL);
    mXPUSHi(status);

SV *
_route(SV *self)
PREINIT:
    char text[1000];
CODE:
    ANSWER(forkless_child_route(CHILD(self), text, sizeof text), NULL, "route");
    RETVAL = newSVpv(text, 0);
OUTPUT:
    RETVAL

SV *
cold_reason(SV *self)
PREINIT:
    char text[1000];
CODE:
    /* Why the launch was not warm; undef if it was, or was not to be. */
    int answer = forkless_child_cold_reason(CHILD(self), text, sizeof text);
    RETVAL = answer < 0 ? newSV(0) : newSVpv(text, 0);
OUTPUT:
    RETVAL

SV *
_usage(SV *self)
PREINIT:
    forkless_usage usage;
CODE:
    ANSWER(forkless_child_usage(CHILD(self), &usage), NULL, "usage");
    RETVAL = usage_hash(aTHX_ &usage);
OUTPUT:
    RETVAL

SV *
limit_events(SV *self)
PREINIT:
    forkless_limit_events events;
CODE:
    RETVAL = forkless_child_limit_events(CHILD(self), &events) < 0 ? newSV(0) : events_hash(aTHX_ &events);
OUTPUT:
    RETVAL

void
skipped(SV *self)
PREINIT:
    forkless_error error;
PPCODE:
    /* The messages of the best-effort steps that failed. */
    forkless_child *child = CHILD(self);
    for (size_t n = 0; forkless_child_skipped(child, n, &error) > 0; n++) mXPUSHs(newSVpv(error.message, 0));

IV
_release(SV *self)
CODE:
    MAGIC *magic = magic_of(aTHX_ self, &child_magic, "Forkless::Child");
    forkless_child *child = (forkless_child *)magic->mg_ptr;
    magic->mg_ptr = NULL;
    pid_t pid = forkless_child_release(child);
    ANSWER(pid, NULL, "release");
    RETVAL = pid;
OUTPUT:
    RETVAL

MODULE = Forkless    PACKAGE = Forkless::Warm

PROTOTYPES: DISABLE

SV *
_open(const char *class, SV *library, SV *templates, SV *idle, SV *life, SV *launches)
PREINIT:
    forkless_warm_options how = FORKLESS_WARM_INIT;
    forkless_error error;
    forkless_warm *warm;
CODE:
    if (SvOK(library)) how.library = SvPV_nolen(library);
    if (SvOK(templates)) how.templates = (size_t)SvUV(templates);
    if (SvOK(idle)) how.idle_ms = ms_of(aTHX_ idle);
    if (SvOK(life)) how.life_ms = ms_of(aTHX_ life);
    if (SvOK(launches)) how.launches = (uint32_t)SvUV(launches);
    ANSWER(forkless_warm_open(&how, &warm, &error), &error, NULL);
    RETVAL = make(aTHX_ class, &warm_magic, warm);
OUTPUT:
    RETVAL

SV *
_of_process(const char *class)
PREINIT:
    forkless_error error;
    forkless_warm *warm;
CODE:
    ANSWER(forkless_warm_open(NULL, &warm, &error), &error, NULL);
    RETVAL = make(aTHX_ class, &warm_magic, warm);
OUTPUT:
    RETVAL

void
_start(SV *self, SV *prepared)
PREINIT:
    forkless_error error;
PPCODE:
    ANSWER(forkless_warm_start(WARM(self), PREPARED(prepared), &error), &error, NULL);
    mXPUSHi(1);

void
templates(SV *self)
PREINIT:
    pid_t pids[64];
PPCODE:
    int count = forkless_warm_templates(WARM(self), pids, 64);
    for (int n = 0; n < count && n < 64; n++) mXPUSHi(pids[n]);

SV *
stats(SV *self)
PREINIT:
    forkless_warm_stats stats;
CODE:
    ANSWER(forkless_warm_get_stats(WARM(self), &stats, sizeof stats), NULL, "stats");
    HV *hash = newHV();
    (void)hv_stores(hash, "warm", newSVuv(stats.warm));
    (void)hv_stores(hash, "cold", newSVuv(stats.cold));
    (void)hv_stores(hash, "starts", newSVuv(stats.starts));
    (void)hv_stores(hash, "refusals", newSVuv(stats.refusals));
    (void)hv_stores(hash, "idle", newSVuv(stats.idle));
    (void)hv_stores(hash, "crashes", newSVuv(stats.crashes));
    RETVAL = newRV_noinc((SV *)hash);
OUTPUT:
    RETVAL

MODULE = Forkless    PACKAGE = Forkless::Sandbox

PROTOTYPES: DISABLE

SV *
_prepare(const char *class, bool landlock, SV *read, SV *write, SV *keep_env, SV *project, SV *hide, SV *limits, int flags, SV *linger)
PREINIT:
    forkless_sandbox_options options = FORKLESS_SANDBOX_INIT;
    forkless_error error;
    forkless_sandbox *sandbox;
CODE:
    at_callers_line(aTHX);
    options.flags = flags;
    options.read = texts_of(aTHX_ read);
    options.write = texts_of(aTHX_ write);
    options.keep_env = texts_of(aTHX_ keep_env);
    options.project = texts_of(aTHX_ project);
    options.hide = texts_of(aTHX_ hide);
    options.limits = texts_of(aTHX_ limits);
    options.linger_ms = ms_of(aTHX_ linger);
    /* A string with a NUL byte. */
    const bool good = options.read != NULL && options.write != NULL && options.keep_env != NULL && options.project != NULL
        && options.hide != NULL && options.limits != NULL;
    int (*prepare)(const forkless_sandbox_options *, forkless_sandbox **, forkless_error *) =
        landlock ? forkless_sandbox_landlock : forkless_sandbox_namespaces;
    ANSWER(good ? prepare(&options, &sandbox, &error) : -EINVAL, good ? &error : NULL, "sandbox");
    RETVAL = make(aTHX_ class, &sandbox_magic, sandbox);
OUTPUT:
    RETVAL

void
_check(SV *self)
PREINIT:
    forkless_error error;
PPCODE:
    ANSWER(forkless_sandbox_check(SANDBOX(self), &error), &error, NULL);
    XSRETURN_YES;

MODULE = Forkless    PACKAGE = Forkless::Cgroup

PROTOTYPES: DISABLE

SV *
_new(const char *class, SV *parent, SV *limits)
PREINIT:
    forkless_error error;
    forkless_cgroup *group;
CODE:
    at_callers_line(aTHX);
    char **words = texts_of(aTHX_ limits);
    const char *place = SvOK(parent) ? ops_bytes(aTHX_ parent) : NULL;
    /* A string with a NUL byte. */
    const bool good = words != NULL && (place != NULL || !SvOK(parent));
    ANSWER(good ? forkless_cgroup_with_limits(place, words, &group, &error) : -EINVAL, good ? &error : NULL, "cgroup");
    RETVAL = make(aTHX_ class, &cgroup_magic, group);
OUTPUT:
    RETVAL

IV
fileno(SV *self)
CODE:
    RETVAL = forkless_cgroup_directory(CGROUP(self), NULL);
OUTPUT:
    RETVAL

SV *
_text(SV *self, const char *file)
PREINIT:
    forkless_error error;
CODE:
    /* Without a file: its path. */
    forkless_cgroup *group = CGROUP(self);
    RETVAL = newSVpvs("");
    for (size_t room = 4096;;) {
        char *text = SvGROW(RETVAL, room);
        int length = *file == '\0' ? forkless_cgroup_path(group, text, room, &error) : forkless_cgroup_get(group, file, text, room, &error);
        if (length < 0) SvREFCNT_dec(RETVAL);
        ANSWER(length, &error, NULL);
        if ((size_t)length < room) {
            SvCUR_set(RETVAL, length);
            break;
        }
        room = (size_t)length + 1;
    }
OUTPUT:
    RETVAL

void
_write(SV *self, const char *file, const char *value)
PREINIT:
    forkless_error error;
PPCODE:
    ANSWER(forkless_cgroup_set(CGROUP(self), file, value, &error), &error, NULL);
    XSRETURN_YES;

SV *
_counter(SV *self, const char *file, const char *name)
PREINIT:
    forkless_error error;
    uint64_t count;
CODE:
    ANSWER(forkless_cgroup_counter(CGROUP(self), file, name, &count, &error), &error, NULL);
    RETVAL = newSVuv(count);
OUTPUT:
    RETVAL

void
_signal(SV *self, int signal)
PREINIT:
    forkless_error error;
PPCODE:
    ANSWER(signal == SIGKILL ? forkless_cgroup_kill(CGROUP(self), &error) : forkless_cgroup_signal(CGROUP(self), signal, &error), &error, NULL);
    XSRETURN_YES;

IV
_wait_empty(SV *self, SV *timeout)
PREINIT:
    forkless_error error;
CODE:
    forkless_cgroup *group = CGROUP(self);
    int64_t ms = ms_of(aTHX_ timeout), end = ms < 0 ? -1 : now_ms() + ms;
    int answer;
    for (;;) {
        int64_t left = end < 0 ? 50 : end - now_ms();
        answer = forkless_cgroup_wait_empty(group, left > 50 ? 50 : left < 0 ? 0 : left, &error);
        if (answer != 0 || (end >= 0 && now_ms() >= end)) break;
        PERL_ASYNC_CHECK();
    }
    ANSWER(answer, &error, NULL);
    RETVAL = answer;
OUTPUT:
    RETVAL

void
_end(SV *self)
PREINIT:
    forkless_error error;
PPCODE:
    MAGIC *magic = magic_of(aTHX_ self, &cgroup_magic, "Forkless::Cgroup");
    forkless_cgroup *group = (forkless_cgroup *)magic->mg_ptr;
    magic->mg_ptr = NULL;
    ANSWER(forkless_cgroup_end(group, &error), &error, NULL);
    XSRETURN_YES;

MODULE = Forkless    PACKAGE = Forkless::Pty

PROTOTYPES: DISABLE

SV *
_new(const char *class, unsigned short rows, unsigned short columns)
PREINIT:
    forkless_error error;
    forkless_pty *pty;
    struct winsize size = { 0 };
CODE:
    size.ws_row = rows;
    size.ws_col = columns;
    ANSWER(forkless_pty_open(&size, &pty, &error), &error, NULL);
    RETVAL = make(aTHX_ class, &pty_magic, pty);
OUTPUT:
    RETVAL

void
_number(SV *self, int argument = 0)
ALIAS:
    _fd = 0
    _send_eof = 1
    _make_raw = 2
    _echo = 3
PPCODE:
    const forkless_pty *pty = PTY(self);
    int answer = ix == 0   ? forkless_pty_fd(pty)
                 : ix == 1 ? forkless_pty_send_eof(pty)
                 : ix == 2 ? forkless_pty_make_raw(pty)
                           : forkless_pty_echo(pty, argument);
    ANSWER(answer, NULL, GvNAME(CvGV(cv)) + 1);
    mXPUSHi(answer);

void
_size(SV *self)
PREINIT:
    struct winsize size;
PPCODE:
    ANSWER(forkless_pty_size(PTY(self), &size), NULL, "size");
    mXPUSHi(size.ws_row);
    mXPUSHi(size.ws_col);

void
_resize(SV *self, unsigned short rows, unsigned short columns)
PREINIT:
    struct winsize size = { 0 };
PPCODE:
    size.ws_row = rows;
    size.ws_col = columns;
    ANSWER(forkless_pty_resize(PTY(self), &size), NULL, "resize");
    XSRETURN_YES;

void
_path(SV *self)
PREINIT:
    char path[64];
PPCODE:
    ANSWER(forkless_pty_path(PTY(self), path, sizeof path), NULL, "path");
    mXPUSHp(path, strlen(path));

void
_read_until_exit(SV *self, SV *child, SV *linger)
PREINIT:
    forkless_error error;
    forkless_output *output;
PPCODE:
    ANSWER(forkless_pty_read_until_exit(PTY(self), CHILD(child), SvOK(linger) ? ms_of(aTHX_ linger) : 0, &output, &error), &error, NULL);
    SV *out = sv_2mortal(newSVpvn(output->out, output->out_size));
    SvTAINTED_on(out);
    XPUSHs(out);
    mXPUSHi(output->status);
    forkless_output_free(output);

MODULE = Forkless    PACKAGE = Forkless::Pipeline

PROTOTYPES: DISABLE

SV *
_new(const char *class, bool pipefail)
PREINIT:
    forkless_pipeline *pipeline;
CODE:
    ANSWER(forkless_pipeline_new(&pipeline), NULL, "pipeline");
    forkless_pipeline_pipefail(pipeline, pipefail);
    RETVAL = make(aTHX_ class, &pipeline_magic, pipeline);
OUTPUT:
    RETVAL

void
_add(SV *self, SV *command)
PREINIT:
    forkless_error error;
PPCODE:
    if (is_of(aTHX_ command, &prepared_magic))
        ANSWER(forkless_pipeline_prepared(PIPELINE(self), PREPARED(command)), NULL, "pipeline");
    else
        ANSWER(forkless_pipeline_command(PIPELINE(self), COMMAND(command), &error), &error, NULL);
    XSRETURN_YES;

void
_status(SV *self)
PREINIT:
    forkless_error error;
    int *statuses, status;
PPCODE:
    int count = room_of(aTHX_ self, &statuses);
    PERL_FLUSHALL_FOR_CHILD;
    ANSWER(forkless_pipeline_status(PIPELINE(self), count, statuses, &status, &error), &error, NULL);
    mXPUSHi(status);
    for (int n = 0; n < count; n++) mXPUSHi(statuses[n]);

void
_spawn(SV *self)
PREINIT:
    forkless_error error;
PPCODE:
    int count = forkless_pipeline_count(PIPELINE(self));
    SV *room = sv_2mortal(newSV((count + 1) * sizeof(forkless_child *)));
    forkless_child **children = (forkless_child **)SvPVX(room);
    PERL_FLUSHALL_FOR_CHILD;
    ANSWER(forkless_pipeline_spawn(PIPELINE(self), count, children, &error), &error, NULL);
    for (int n = 0; n < count; n++) mXPUSHs(make(aTHX_ "Forkless::Child", &child_magic, children[n]));

MODULE = Forkless    PACKAGE = Forkless::WaitSet

PROTOTYPES: DISABLE

SV *
_new(const char *class)
PREINIT:
    forkless_waitset *set;
CODE:
    ANSWER(forkless_waitset_new(&set), NULL, "wait set");
    RETVAL = make(aTHX_ class, &waitset_magic, set);
OUTPUT:
    RETVAL

void
_insert(SV *self, SV *child, UV number)
PREINIT:
    forkless_error error;
    uint64_t key;
PPCODE:
    forkless_waitset *set = WAITSET(self);
    MAGIC *magic = magic_of(aTHX_ child, &child_magic, "Forkless::Child");
    ANSWER(forkless_waitset_insert(set, (forkless_child *)magic->mg_ptr, NUM2PTR(void *, number), &key, &error), &error, NULL);
    /* The handle belongs to the set now. */
    magic->mg_ptr = NULL;
    mXPUSHu(key);

void
_remove(SV *self, UV key, SV *child)
PREINIT:
    forkless_child *pointer;
PPCODE:
    MAGIC *magic = SvROK(child) ? mg_findext(SvRV(child), PERL_MAGIC_ext, &child_magic) : NULL;
    if (magic == NULL || magic->mg_ptr != NULL) at_callers_line(aTHX);
    if (magic == NULL || magic->mg_ptr != NULL) croak("this child is not in a wait set");
    ANSWER(forkless_waitset_remove(WAITSET(self), key, &pointer), NULL, "remove");
    magic->mg_ptr = (char *)pointer;
    XSRETURN_YES;

void
_signal(SV *self, UV key, int signal)
PPCODE:
    ANSWER(forkless_waitset_signal(WAITSET(self), key, signal), NULL, "signal");
    XSRETURN_YES;

IV
_fd(SV *self)
CODE:
    RETVAL = forkless_waitset_fd(WAITSET(self));
OUTPUT:
    RETVAL

void
_wait(SV *self, SV *timeout, HV *children)
PREINIT:
    forkless_error error;
    forkless_ended ended;
PPCODE:
    /* Returns the child's number, its status and an errno; an empty list at the timeout. */
    forkless_waitset *set = WAITSET(self);
    int64_t ms = ms_of(aTHX_ timeout), end = ms < 0 ? -1 : now_ms() + ms;
    int answer;
    for (;;) {
        /* First: a signal handler may take the last child out of the set. */
        PERL_ASYNC_CHECK();
        answer = forkless_waitset_wait(set, 0, &ended, &error);
        if (answer != 0 || forkless_waitset_count(set) == 0 || (end >= 0 && now_ms() >= end)) break;
        wait_readable(forkless_waitset_fd(set), end);
    }
    ANSWER(answer, &error, NULL);
    if (answer == 0) XSRETURN_EMPTY;
    SV *number = sv_2mortal(newSVuv(PTR2UV(ended.value)));
    HE *entry = hv_fetch_ent(children, number, 0, 0);
    SV *child = entry != NULL && SvROK(HeVAL(entry)) ? *av_fetch((AV *)SvRV(HeVAL(entry)), 0, 0) : NULL;
    MAGIC *magic = child != NULL && SvROK(child) ? mg_findext(SvRV(child), PERL_MAGIC_ext, &child_magic) : NULL;
    if (magic != NULL && magic->mg_ptr == NULL) magic->mg_ptr = (char *)ended.child;
    else forkless_child_free(ended.child);
    EXTEND(SP, 3);
    PUSHs(number);
    mPUSHi(ended.status);
    mPUSHi(-ended.error);
