/* Programs that rely on what libc's functions do: they call no malloc, no signal handler runs meanwhile, and they need little
 * stack. Each part is a process of its own, which it may ruin. */

#include "common.h"
#include <malloc.h>
#include <setjmp.h>
#include <sys/mman.h>

/* As the tests in Rust: how often to repeat, and how slow this machine is. */
static double scale = 1, slowness = 1;

static void read_dials(void) {
    const char *text;
    if ((text = getenv("FORKLESS_TEST_SCALE")))
        scale = atof(text);
    if ((text = getenv("FORKLESS_TEST_SLOW")) && atof(text) > 1)
        slowness = atof(text);
}

static int scaled(int count) { return count * scale > 1 ? (int)(count * scale) : 1; }

static void patience(int seconds) { alarm((unsigned)(seconds * slowness)); }

static char *exits[] = {"sh", "-c", "exit 3", NULL};

/* Starts a program by each function, and returns whether it has ended with 3. */
static int launch(int how) {
    int status = -1;
    pid_t pid;
    if (how == 0) {
        if (posix_spawn(&pid, "/bin/sh", NULL, NULL, exits, environ))
            return 0;
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
        }
    } else if (how == 1) {
        status = system("exit 3");
    } else {
        FILE *stream = popen("exit 3", "r");
        status = stream ? pclose(stream) : -1;
    }
    return status == 3 << 8;
}

static const char *const functions[] = {"posix_spawn", "system", "popen"};

/* Runs a part in a process of its own. */
static void part(const char *what, int how, void (*work)(int)) {
    pid_t pid = fork();
    if (!pid) {
        work(how);
        _exit(0);
    }
    int status;
    waitpid(pid, &status, 0);
    say("%s, %s: %s\n", what, functions[how], status_words(status));
}

static volatile int launched, failed, in_handler;
static timer_t timer;

/* Once, so that the program goes on for a while after each signal, however slow a launch is. */
static void signal_soon(void) {
    struct itimerspec soon = {{0, 0}, {0, 1000000}};
    timer_settime(timer, 0, &soon, NULL);
}

static void on_timer(int number) {
    (void)number;
    int saved = errno;
    patience(60);
    if (launch(in_handler))
        launched++;
    else
        failed++;
    signal_soon();
    errno = saved;
}

/* A timer's handler starts programs while the program is in malloc. */
static void in_malloc(int how) {
    in_handler = how;
    struct sigaction action = {.sa_handler = on_timer};
    sigaction(SIGUSR1, &action, NULL);
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    timer_create(CLOCK_MONOTONIC, &event, &timer);
    signal_soon();
    char *kept[64] = {0};
    for (unsigned n = 1; launched + failed < scaled(100); n = n * 1103515245 + 12345) {
        char **one = &kept[n >> 16 & 63];
        free(*one);
        *one = malloc(1100 + (n >> 8) % 20000);
    }
    _exit(failed ? 1 : 0);
}

static void on_abort(int number) {
    (void)number;
    patience(60);
    _exit(launch(in_handler) ? 0 : 1);
}

/* A crash handler starts a program, after malloc has found its heap corrupted. */
static void after_corruption(int how) {
    in_handler = how;
    signal(SIGABRT, on_abort);
    signal(SIGSEGV, on_abort);
    char *block = malloc(2000);
    memset(block + malloc_usable_size(block), 0xff, 8);
    char *volatile other = malloc(50000);
    (void)other;
    _exit(99);
}

/* The caller's stack has 8 KiB, the size of SIGSTKSZ. */
static void on_small_stack(int how) {
    in_handler = how;
    stack_t stack = {.ss_size = 8192};
    char *memory = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(memory, 4096, PROT_NONE);
    stack.ss_sp = memory + 4096;
    sigaltstack(&stack, NULL);
    struct sigaction action = {.sa_handler = on_abort, .sa_flags = SA_ONSTACK};
    sigaction(SIGUSR1, &action, NULL);
    raise(SIGUSR1);
    _exit(99);
}

static volatile pid_t newest;
static volatile int unknown, reaped;

static void on_child(int number) {
    (void)number;
    int saved = errno;
    pid_t pid;
    while ((pid = waitpid(-1, NULL, WNOHANG)) > 0) {
        if (pid != newest)
            unknown++;
        reaped++;
    }
    errno = saved;
}

/* A handler of SIGCHLD knows the child: its pid is stored before the handler runs. */
static void pid_is_known(int how) {
    if (how)
        _exit(0);
    struct sigaction action = {.sa_handler = on_child, .sa_flags = SA_RESTART};
    patience(120);
    sigaction(SIGCHLD, &action, NULL);
    char *words[] = {"true", NULL};
    for (int n = 0; n < scaled(500); n++) {
        newest = 0;
        if (posix_spawn((pid_t *)&newest, "/bin/true", NULL, NULL, words, environ))
            _exit(2);
        while (reaped <= n)
            usleep(100);
    }
    _exit(unknown ? 1 : 0);
}

/* A handler of SIGCHLD that reaps any child does not take the status that system(3) waits for. */
static void status_is_kept(int how) {
    if (how != 1)
        _exit(0);
    struct sigaction action = {.sa_handler = on_child, .sa_flags = SA_RESTART};
    sigaction(SIGCHLD, &action, NULL);
    for (int n = 0; n < scaled(50); n++)
        if (!launch(how))
            _exit(1);
}

static sigjmp_buf place;

static void jumps(int number) {
    (void)number;
    siglongjmp(place, 1);
}

static void jump_often(void) {
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    timer_create(CLOCK_MONOTONIC, &event, &timer);
    for (volatile int n = 0; n < scaled(1500); n++) {
        struct itimerspec once = {{0, 0}, {0, 1000 + n * 100 % 150000}};
        if (!sigsetjmp(place, 1)) {
            timer_settime(timer, 0, &once, NULL);
            pid_t pid;
            posix_spawn(&pid, "/bin/true", NULL, NULL, exits, environ);
            pause();
        }
        while (waitpid(-1, NULL, WNOHANG) > 0) {
        }
    }
}

/* A handler that leaves the function by siglongjmp(3) leaves nothing behind. */
static void left_by_jump(int how) {
    if (how)
        _exit(0);
    signal(SIGUSR1, jumps);
    patience(120);
    jump_often();
    char line[400];
    int maps = 0;
    FILE *file = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, file))
        maps++;
    _exit(maps < 200 ? 0 : 1);
}

/* gcc 16 leaves out a malloc whose result nothing uses, and takes it for successful. */
static void *volatile taken;

/* Without memory there is an error, and no end. */
static void without_memory(int how) {
    char *words[] = {"sh", "-c", "exit 3", malloc(100000), NULL};
    memset(words[3], 'x', 99999);
    words[3][99999] = 0;
    launch(how);
    struct rlimit limit = {1, RLIM_INFINITY};
    setrlimit(RLIMIT_AS, &limit);
    for (size_t size = 1 << 20; size > 8;)
        if (!(taken = malloc(size)))
            size /= 2;
    pid_t pid;
    errno = 0;
    /* Whether there is room for a small one depends on what the launch before has left. */
    if (how == 0)
        _exit(posix_spawn(&pid, "/bin/sh", NULL, NULL, words, environ) == ENOMEM ? 0 : 1);
    if (how == 1)
        _exit(system(words[3]) == 0x7f00 && errno == ENOMEM ? 0 : 1);
    _exit(!popen(words[3], "r") && errno == ENOMEM ? 0 : 1);
}

static void *cancelled_anywhere(void *how) {
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
    launch((int)(long)how);
    pthread_testcancel();
    return NULL;
}

/* A thread that can be cancelled at any point. libc's popen hangs then. */
static void cancelled(int how) {
    patience(60);
    for (int n = 0; n < scaled(50) && how < 2; n++) {
        pthread_t thread;
        void *result;
        pthread_create(&thread, NULL, cancelled_anywhere, (void *)(long)how);
        usleep((useconds_t)(n * 20));
        pthread_cancel(thread);
        pthread_join(thread, &result);
    }
}

static void *closes(void *stream) { return (void *)(long)pclose(stream); }

/* pclose can be cancelled while it writes. */
static void cancelled_in_pclose(int how) {
    if (how)
        _exit(0);
    patience(60);
    signal(SIGPIPE, SIG_IGN);
    FILE *stream = popen("exec sleep 100", "w");
    setvbuf(stream, malloc(100000), _IOFBF, 100000);
    for (int n = 0; n < 65536 + 2000; n++)
        putc('x', stream);
    pthread_t thread;
    void *result;
    pthread_create(&thread, NULL, closes, stream);
    usleep(200000);
    pthread_cancel(thread);
    pthread_join(thread, &result);
    system("kill -9 $(cat /proc/$PPID/task/*/children) 2>/dev/null");
    _exit(result == PTHREAD_CANCELED ? 0 : 1);
}

/* A program that is named by a descriptor, which closefrom would keep. */
static void named_by_descriptor(void) {
    pid_t pid;
    char path[40];
    posix_spawn_file_actions_t actions;
    int fd = fcntl(open("/bin/sh", O_RDONLY | O_CLOEXEC), F_DUPFD_CLOEXEC, 20);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addclosefrom_np(&actions, 40);
    const char *const places[] = {"/proc/self/fd/%d", "/dev/fd/%d"};
    for (int n = 0; n < 2; n++) {
        snprintf(path, sizeof path, places[n], fd);
        outcome(places[n], posix_spawn(&pid, path, &actions, NULL, exits, environ), &pid);
    }
    posix_spawn_file_actions_destroy(&actions);
}

static volatile int stopped;

static void *launches(void *unused) {
    while (!stopped)
        launch(0);
    return unused;
}

/* Copies of a process whose other threads were starting programs, without handlers of pthread_atfork. */
static void in_copies(int how) {
    if (how)
        _exit(0);
    pthread_t threads[2];
    int wrong = 0;
    for (int n = 0; n < 2; n++)
        pthread_create(&threads[n], NULL, launches, NULL);
    for (int n = 0; n < scaled(100); n++) {
        pid_t pid = _Fork();
        if (!pid)
            _exit(launch(0) && launch(0) ? 0 : 1);
        int status;
        /* Not patience(2): a copy that waits for a lock has all signals blocked. */
        for (int tries = 0; waitpid(pid, &status, WNOHANG) == 0; tries++) {
            if (tries == 60000)
                kill(pid, SIGKILL);
            usleep(1000);
        }
        if (status) {
            wrong++;
            break;
        }
    }
    stopped = 1;
    for (int n = 0; n < 2; n++)
        pthread_join(threads[n], NULL);
    _exit(wrong ? 1 : 0);
}

/* No further process may be started. */
static void no_process(int how) {
    struct rlimit limit = {0, 0};
    if (how == 2 || (geteuid() == 0 && (setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534))))
        _exit(0);
    setrlimit(RLIMIT_NPROC, &limit);
    errno = 0;
    if (how == 0) {
        int error = posix_spawn(&(pid_t){0}, "/bin/sh", NULL, NULL, exits, environ);
        /* glibc 2.31 returns 1, the negated result of clone(2), for each of its errors. */
        _exit(error == 1 && !is_handled() && fork() < 0 ? errno : error);
    }
    _exit(system("exit 3") == 0x7f00 ? errno : 1);
}

int main(int argc, char **argv) {
    begin(argc, argv);
    read_dials();
    for (int how = 0; how < 3; how++) {
        /* popen calls malloc in libc too. */
        if (how < 2) {
            part("in malloc", how, in_malloc);
            part("after corruption", how, after_corruption);
        }
        part("on a small stack", how, on_small_stack);
        part("the pid is known", how, pid_is_known);
        part("the status is kept", how, status_is_kept);
        part("left by a jump", how, left_by_jump);
        part("without memory", how, without_memory);
        part("cancelled", how, cancelled);
        part("cancelled in pclose", how, cancelled_in_pclose);
        part("in copies", how, in_copies);
        part("no process", how, no_process);
    }
    named_by_descriptor();
    return 0;
}
