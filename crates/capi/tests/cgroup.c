/* Tests of cgroup functions. Limits need version 2 controllers, which are missing on a machine that uses version 1. */
#include "check.h"
#include <limits.h>
#include <poll.h>

static char parent[PATH_MAX];

/* A directory where a cgroup can be created: below this process's own, or in the usual mount point. */
static int find_parent(void) {
    const char *places[] = {NULL, "/sys/fs/cgroup", "/sys/fs/cgroup/unified"};
    for (int n = 0; n < 3; n++) {
        forkless_cgroup *probe;
        if (places[n] != NULL)
            snprintf(parent, sizeof parent, "%s", places[n]);
        else if (forkless_cgroup_own(parent, sizeof parent, NULL) < 0)
            continue;
        char name[64];
        snprintf(name, sizeof name, "forkless-probe-%d", (int)getpid());
        if (forkless_cgroup_create(parent, name, &probe, NULL) < 0) continue;
        EXPECT(0, forkless_cgroup_remove(probe, NULL));
        return 1;
    }
    return 0;
}

static forkless_cgroup *create(const char *what) {
    forkless_cgroup *group = NULL;
    forkless_error error;
    char name[64];
    snprintf(name, sizeof name, "forkless-c-%s-%d", what, (int)getpid());
    if (forkless_cgroup_create(parent, name, &group, &error) < 0) {
        fprintf(stderr, "%s\n", error.message);
        exit(1);
    }
    return group;
}

/* A new cgroup with this controller. */
static forkless_cgroup *limited(const char *controller) {
    char *controllers[] = {(char *)controller, NULL};
    forkless_error error;
    if (forkless_cgroup_hand_down(parent, controllers, &error) < 0) {
        printf("SKIPPED: limits of cgroups in C, because of the controller %s: %s\n", controller, error.message);
        return NULL;
    }
    return create(controller);
}

static forkless_child *born_in(forkless_cgroup *group, const char *line) {
    forkless_command *command = shell(line);
    forkless_child *child = NULL;
    forkless_error error;
    EXPECT(0, forkless_command_cgroup(command, forkless_cgroup_directory(group, NULL)));
    if (forkless_command_spawn(command, &child, &error) < 0) {
        fprintf(stderr, "%s\n", error.message);
        exit(1);
    }
    forkless_command_free(command);
    return child;
}

static void expect_killed(forkless_child *child, int number) {
    int status;
    EXPECT(0, forkless_child_wait(child, &status, NULL));
    CHECK(WIFSIGNALED(status));
    EXPECT(number, WTERMSIG(status));
    forkless_child_free(child);
}

static void a_cgroup_is_created_used_killed_and_removed(void) {
    forkless_cgroup *group = create("kill"), *same = NULL;
    forkless_error error;
    char path[PATH_MAX], list[256], pid[32];
    struct stat by_name, by_fd;
    CHECK(forkless_cgroup_path(group, path, sizeof path, NULL) > (int)strlen(parent));
    EXPECT(0, stat(path, &by_name));
    EXPECT(0, fstat(forkless_cgroup_directory(group, NULL), &by_fd));
    CHECK(by_name.st_ino == by_fd.st_ino);
    /* As snprintf(3): truncated, with the full length returned. */
    EXPECT((long long)strlen(path), forkless_cgroup_path(group, list, 5, NULL));
    CHECK(strlen(list) == 4 && strncmp(list, path, 4) == 0);

    forkless_child *child = born_in(group, "sleep 1000 & wait");
    snprintf(pid, sizeof pid, "%d", (int)forkless_child_pid(child));
    CHECK(forkless_cgroup_get(group, "cgroup.procs", list, sizeof list, NULL) > 0);
    CHECK(strstr(list, pid) != NULL);
    EXPECT(0, forkless_cgroup_wait_empty(group, 1, NULL));
    /* An existing cgroup is not changed, and one with a process is not removed. */
    EXPECT(-EEXIST, forkless_cgroup_create(parent, strrchr(path, '/') + 1, &same, &error));
    EXPECT(EEXIST, error.errnum);
    CHECK(strstr(error.message, path) != NULL && same == NULL);
    EXPECT(0, forkless_cgroup_kill(group, NULL));
    expect_killed(child, SIGKILL);
    EXPECT(1, forkless_cgroup_wait_empty(group, 20000, NULL));
    EXPECT(0, forkless_cgroup_remove(group, &error));
    EXPECT(-1, stat(path, &by_name));
}

static void a_name_is_found_and_all_end(void) {
    char *none[] = {NULL}, *unknown[] = {(char *)"none.max", (char *)"1", NULL};
    forkless_cgroup *group = NULL;
    forkless_error error;
    char path[PATH_MAX];
    EXPECT(0, forkless_cgroup_with_limits(parent, none, &group, NULL));
    CHECK(forkless_cgroup_path(group, path, sizeof path, NULL) > 0);
    forkless_child *polite = born_in(group, "exec sleep 1000");
    EXPECT(-EINVAL, forkless_cgroup_signal(group, 0, NULL));
    EXPECT(0, forkless_cgroup_signal(group, SIGTERM, NULL));
    expect_killed(polite, SIGTERM);
    forkless_child *child = born_in(group, "sleep 1000 & trap '' TERM; wait");
    EXPECT(0, forkless_cgroup_end(group, &error));
    expect_killed(child, SIGKILL);
    CHECK(access(path, F_OK) != 0);
    EXPECT(-ENOENT, forkless_cgroup_with_limits(parent, unknown, &group, &error));
    CHECK(strstr(error.message, "none") != NULL);
}

static void a_cgroup_with_a_process_is_not_removed(void) {
    forkless_cgroup *group = create("busy");
    forkless_child *child = born_in(group, "exec sleep 1000");
    forkless_error error;
    char path[PATH_MAX];
    int status;
    CHECK(forkless_cgroup_path(group, path, sizeof path, NULL) > 0);
    EXPECT(-EBUSY, forkless_cgroup_remove(group, &error));
    CHECK(strstr(error.message, path) != NULL);
    EXPECT(0, forkless_child_try_wait(child, &status, NULL));
    EXPECT(0, forkless_child_kill(child));
    expect_killed(child, SIGKILL);
    /* The kernel may count the process for a moment longer. */
    for (int n = 0; rmdir(path) < 0; n++) {
        CHECK(errno == EBUSY && n < 20000);
        usleep(1000);
    }
}

static void terminate_ends_all_processes(void) {
    forkless_cgroup *group = create("terminate");
    forkless_child *child = born_in(group, "exec sleep 1000");
    EXPECT(-EINVAL, forkless_cgroup_terminate(group, 0, 0, NULL));
    EXPECT(1, forkless_cgroup_terminate(group, SIGTERM, 20000, NULL));
    expect_killed(child, SIGTERM);
    child = born_in(group, "trap '' TERM; exec sleep 1000");
    /* Whether or not the child has set its trap by now, one of the two signals kills it. */
    int answer = forkless_cgroup_terminate(group, SIGTERM, 0, NULL);
    CHECK(answer == 0 || answer == 1);
    int status;
    EXPECT(0, forkless_child_wait(child, &status, NULL));
    CHECK(WIFSIGNALED(status));
    forkless_child_free(child);
    forkless_cgroup_free(group);
}

static void frozen_and_thawed(void) {
    forkless_cgroup *group = create("freeze");
    forkless_command *command = shell("exec cat");
    forkless_child *child;
    uint64_t frozen = 77;
    char byte = 0;
    int status;
    EXPECT(0, forkless_command_cgroup(command, forkless_cgroup_directory(group, NULL)));
    EXPECT(0, forkless_command_fd_pipe(command, 0));
    EXPECT(0, forkless_command_fd_pipe(command, 1));
    EXPECT(0, forkless_command_spawn(command, &child, NULL));
    forkless_command_free(command);
    EXPECT(0, forkless_cgroup_freeze(group, NULL));
    EXPECT(1, forkless_cgroup_wait_frozen(group, 20000, NULL));
    EXPECT(0, forkless_cgroup_counter(group, "cgroup.events", "frozen", &frozen, NULL));
    EXPECT(1, frozen);
    EXPECT(1, write(forkless_child_fd(child, 0), "x", 1));
    struct pollfd answer = {forkless_child_fd(child, 1), POLLIN, 0};
    EXPECT(0, poll(&answer, 1, 20));
    EXPECT(0, forkless_cgroup_thaw(group, NULL));
    EXPECT(1, read(answer.fd, &byte, 1));
    EXPECT('x', byte);
    EXPECT(0, forkless_child_wait(child, &status, NULL));
    EXPECT(0, status);
    forkless_child_free(child);
    forkless_cgroup_free(group);
}

static void cpu_time_is_counted(void) {
    forkless_cgroup *group = create("time");
    uint64_t nanoseconds = 0;
    /* Includes a grandchild that is not waited for. */
    forkless_child *child = born_in(group, "(n=0; while [ $n -lt 30000 ]; do n=$((n+1)); done) & wait");
    int status;
    EXPECT(0, forkless_child_wait(child, &status, NULL));
    forkless_child_free(child);
    EXPECT(0, forkless_cgroup_cpu_time(group, &nanoseconds, NULL));
    CHECK(nanoseconds > 0 && nanoseconds % 1000 == 0);
    forkless_cgroup_free(group);
}

static void invalid_arguments_are_errors(void) {
    forkless_cgroup *group = create("mistakes"), *none = NULL;
    char *no_controllers[] = {NULL}, *nonsense[] = {(char *)"nonsense", NULL};
    char path[PATH_MAX];
    forkless_error error;
    uint64_t number = 77;
    CHECK(forkless_cgroup_path(group, path, sizeof path, NULL) > 0);
    EXPECT(0, forkless_cgroup_hand_down(path, no_controllers, NULL));
    EXPECT(-ENOENT, forkless_cgroup_hand_down(path, nonsense, &error));
    CHECK(strstr(error.message, "nonsense") != NULL);
    EXPECT(-EINVAL, forkless_cgroup_set(group, "cgroup.freeze", "nonsense", &error));
    CHECK(strstr(error.message, "cgroup.freeze") != NULL);
    EXPECT(-EINVAL, forkless_cgroup_set(group, "cgroup.freeze", NULL, NULL));
    EXPECT(-ENOENT, forkless_cgroup_get(group, "no.such.file", path, sizeof path, NULL));
    EXPECT(-ENOENT, forkless_cgroup_counter(group, "cgroup.events", "nonsense", &number, NULL));
    EXPECT(-EINVAL, forkless_cgroup_counter(group, "cgroup.events", "frozen", NULL, NULL));
    EXPECT(-EINVAL, forkless_cgroup_cpu_time(group, NULL, NULL));
    EXPECT(-ENOENT, forkless_cgroup_create("/no/such/place", "x", &none, NULL));
    EXPECT(-EINVAL, forkless_cgroup_create("/tmp", "x", &none, NULL));
    /* Without a free descriptor, the error is reported as an errno too. */
    struct rlimit old, few;
    int fds[1024], count = 0;
    EXPECT(0, getrlimit(RLIMIT_NOFILE, &old));
    few = old, few.rlim_cur = 64;
    EXPECT(0, setrlimit(RLIMIT_NOFILE, &few));
    while ((fds[count] = dup(0)) >= 0) count++;
    EXPECT(-EMFILE, forkless_cgroup_get(group, "cgroup.procs", path, sizeof path, &error));
    EXPECT(EMFILE, error.errnum);
    while (count > 0) close(fds[--count]);
    EXPECT(0, setrlimit(RLIMIT_NOFILE, &old));
    CHECK(none == NULL);
    EXPECT(77, number);
    forkless_cgroup_free(group);
}

static void processes_are_limited(void) {
    forkless_cgroup *group = limited("pids");
    uint64_t peak = 0;
    int status;
    if (group == NULL) return;
    EXPECT(0, forkless_cgroup_pids_max(group, 3, NULL));
    forkless_child *child = born_in(group, "for n in 1 2 3 4; do sleep 1000 & done");
    EXPECT(0, forkless_child_wait(child, &status, NULL));
    CHECK(status != 0);
    forkless_child_free(child);
    EXPECT(0, forkless_cgroup_counter(group, "pids.events", "max", &peak, NULL));
    CHECK(peak > 0);
    if (forkless_cgroup_pids_peak(group, &peak, NULL) == 0) EXPECT(3, peak);
    EXPECT(0, forkless_cgroup_kill(group, NULL));
    EXPECT(1, forkless_cgroup_wait_empty(group, 20000, NULL));
    EXPECT(0, forkless_cgroup_remove(group, NULL));
}

static void memory_is_limited(void) {
    forkless_cgroup *group = limited("memory");
    uint64_t number = 77;
    char text[32];
    if (group == NULL) return;
    EXPECT(0, forkless_cgroup_memory_max(group, 16 << 20, NULL));
    EXPECT(0, forkless_cgroup_memory_high(group, UINT64_MAX, NULL));
    forkless_cgroup_memory_swap_max(group, 0, NULL);
    EXPECT(8, forkless_cgroup_get(group, "memory.max", text, sizeof text, NULL));
    CHECK(strcmp(text, "16777216") == 0);
    EXPECT(0, forkless_cgroup_oom_kills(group, &number, NULL));
    EXPECT(0, number);
    expect_killed(born_in(group, "x=a; while :; do x=$x$x; done"), SIGKILL);
    EXPECT(0, forkless_cgroup_oom_kills(group, &number, NULL));
    EXPECT(1, number);
    if (forkless_cgroup_memory_peak(group, &number, NULL) == 0) CHECK(number > 1 << 20 && number <= 16 << 20);
    EXPECT(0, forkless_cgroup_remove(group, NULL));
}

static void cpus_are_limited(void) {
    forkless_cgroup *group = limited("cpu");
    char text[32];
    if (group == NULL) return;
    EXPECT(0, forkless_cgroup_cpu_max(group, 10000, 100000, NULL));
    EXPECT(0, forkless_cgroup_cpu_weight(group, 50, NULL));
    CHECK(forkless_cgroup_get(group, "cpu.max", text, sizeof text, NULL) > 0 && strcmp(text, "10000 100000") == 0);
    CHECK(forkless_cgroup_cpu_weight(group, 0, NULL) < 0);
    EXPECT(0, forkless_cgroup_remove(group, NULL));
    if ((group = limited("io")) == NULL) return;
    int answer = forkless_cgroup_io_weight(group, 50, NULL);
    CHECK(answer == 0 || answer == -ENOENT);
    EXPECT(0, forkless_cgroup_remove(group, NULL));
}

/* Each launch has a cgroup of its own below this process's. */
static void a_launch_with_a_cgroup_leaves_nothing(void) {
    forkless_command *command = shell("setsid sleep 1000 & echo done");
    forkless_output *output;
    forkless_limit_events events;
    forkless_child *child;
    forkless_error error;
    int status;
    EXPECT(0, forkless_command_cgroup_parent(command, parent));
    EXPECT(0, forkless_command_capture(command, NULL, &output, &error));
    CHECK(output->out_size == 5 && output->limit_events.oom_kills == 0);
    forkless_output_free(output);
    EXPECT(0, forkless_command_fd_pipe(command, 1));
    EXPECT(0, forkless_command_spawn(command, &child, &error));
    EXPECT(-ENODATA, forkless_child_limit_events(child, &events));
    /* What is left holds the pipe. */
    EXPECT(0, forkless_child_output(child, &output, &error));
    CHECK(output->out_size == 5);
    forkless_output_free(output);
    EXPECT(0, forkless_child_wait(child, &status, NULL));
    EXPECT(0, forkless_child_limit_events(child, &events));
    CHECK(events.tasks_max == 0);
    forkless_child_free(child);
    EXPECT(0, forkless_command_memory_max(command, "lots"));
    EXPECT(-EINVAL, forkless_command_spawn(command, &child, &error));
    CHECK(strstr(error.message, "memory_max must be") != NULL);
    forkless_command_free(command);
}

int main(void) {
    int fds = open_fds();
    if (!find_parent()) {
        printf("SKIPPED: cgroups in C, because no version 2 group is writable here\n");
        return 0;
    }
    a_cgroup_is_created_used_killed_and_removed();
    a_name_is_found_and_all_end();
    a_cgroup_with_a_process_is_not_removed();
    terminate_ends_all_processes();
    a_launch_with_a_cgroup_leaves_nothing();
    frozen_and_thawed();
    cpu_time_is_counted();
    invalid_arguments_are_errors();
    processes_are_limited();
    memory_is_limited();
    cpus_are_limited();
    expect_nothing_left(fds);
    return 0;
}
