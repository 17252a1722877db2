/* Invalid arguments are errors and no crash, and output parameters are not written. Nothing is launched, so that it runs under
 * valgrind. */
#include "check.h"
#include <sys/ioctl.h>

static forkless_command *command;
static char text[64];
static char *list[] = {text, NULL};

/* A null pointer as handle. (Settings of the table: c.rs.) */
static void no_command(void) {
    EXPECT(-EINVAL, forkless_command_or_else(NULL, "x"));
    EXPECT(-EINVAL, forkless_command_program_fd(NULL, 0));
    EXPECT(-EINVAL, forkless_command_arg(NULL, "x"));
    EXPECT(-EINVAL, forkless_command_args(NULL, list));
    EXPECT(-EINVAL, forkless_command_arg0(NULL, "x"));
    EXPECT(-EINVAL, forkless_command_env(NULL, "x", "x"));
    EXPECT(-EINVAL, forkless_command_env_remove(NULL, "x"));
    EXPECT(-EINVAL, forkless_command_env_clear(NULL));
    EXPECT(-EINVAL, forkless_command_envs(NULL, list));
    EXPECT(-EINVAL, forkless_command_current_dir(NULL, "/"));
    EXPECT(-EINVAL, forkless_command_current_dir_fd(NULL, 0));
    EXPECT(-EINVAL, forkless_command_fd(NULL, 0, 0));
    EXPECT(-EINVAL, forkless_command_fd_inherit(NULL, 0));
    EXPECT(-EINVAL, forkless_command_fd_null(NULL, 0));
    EXPECT(-EINVAL, forkless_command_fd_pipe(NULL, 0));
    EXPECT(-EINVAL, forkless_command_fd_socketpair(NULL, 0));
    EXPECT(-EINVAL, forkless_command_fd_dup(NULL, 0, 1));
    EXPECT(-EINVAL, forkless_command_fd_open(NULL, 0, "x", 0, 0));
    EXPECT(-EINVAL, forkless_command_inherit_all(NULL, 1));
    EXPECT(-EINVAL, forkless_command_setsid(NULL, 1));
    EXPECT(-EINVAL, forkless_command_process_group(NULL, 0));
    EXPECT(-EINVAL, forkless_command_signal_default(NULL, 1));
    EXPECT(-EINVAL, forkless_command_signal_ignore(NULL, 1));
    EXPECT(-EINVAL, forkless_command_signal_inherit(NULL, 1));
    EXPECT(-EINVAL, forkless_command_signal_block(NULL, 1));
    EXPECT(-EINVAL, forkless_command_inherit_signal_mask(NULL, 1));
    EXPECT(-EINVAL, forkless_command_pidfd(NULL, 1));
    EXPECT(-EINVAL, forkless_command_autoreap(NULL, 1));
    EXPECT(-EINVAL, forkless_command_pidfd_autokill(NULL, 1));
    EXPECT(-EINVAL, forkless_command_keep_record_locks(NULL, 1));
    EXPECT(-EINVAL, forkless_command_kill_on_free(NULL, 1));
    EXPECT(-EINVAL, forkless_command_retry_busy(NULL, 1));
    EXPECT(-EINVAL, forkless_command_scripts_by_shell(NULL, 1));
    EXPECT(-EINVAL, forkless_command_best_effort(NULL, 5));
    EXPECT(-EINVAL, forkless_command_launcher(NULL, 0));
    EXPECT(-EINVAL, forkless_command_pre_exec(NULL, NULL, NULL));
    EXPECT(-EINVAL, forkless_command_uid(NULL, 0));
    EXPECT(-EINVAL, forkless_command_gid(NULL, 0));
    EXPECT(-EINVAL, forkless_command_groups(NULL, NULL, 0));
    EXPECT(-EINVAL, forkless_command_user(NULL, "x"));
    EXPECT(-EINVAL, forkless_command_group(NULL, "x"));
    EXPECT(-EINVAL, forkless_command_rlimit(NULL, 0, 0, 0));
    EXPECT(-EINVAL, forkless_command_scheduler(NULL, 0, 0));
    EXPECT(-EINVAL, forkless_command_cpu_affinity(NULL, NULL, 0));
    EXPECT(-EINVAL, forkless_command_io_priority(NULL, 1, 0));
    EXPECT(-EINVAL, forkless_command_unshare(NULL, 0x20000));
    EXPECT(-EINVAL, forkless_command_join(NULL, 0x20000, 0));
    EXPECT(-EINVAL, forkless_command_map_uid(NULL, 0, 0, 1));
    EXPECT(-EINVAL, forkless_command_map_gid(NULL, 0, 0, 1));
    EXPECT(-EINVAL, forkless_command_mount(NULL, "x", "x", "x", 0, NULL));
    EXPECT(-EINVAL, forkless_command_bind(NULL, "x", "x"));
    EXPECT(-EINVAL, forkless_command_bind_read_only(NULL, "x", "x"));
    EXPECT(-EINVAL, forkless_command_read_only(NULL, "x"));
    EXPECT(-EINVAL, forkless_command_mount_attributes(NULL, "x", 0, 0));
    EXPECT(-EINVAL, forkless_command_file_system(NULL, "x", list, 0, "x"));
    EXPECT(-EINVAL, forkless_command_attach_mount(NULL, 0, "x"));
    EXPECT(-EINVAL, forkless_command_overlay(NULL, list, NULL, NULL, "x"));
    EXPECT(-EINVAL, forkless_command_unmount(NULL, "x"));
    EXPECT(-EINVAL, forkless_command_make_dir(NULL, "x", 0));
    EXPECT(-EINVAL, forkless_command_make_symlink(NULL, "x", "x"));
    EXPECT(-EINVAL, forkless_command_devices(NULL, "x"));
    EXPECT(-EINVAL, forkless_command_tmpfs(NULL, "x", "x"));
    EXPECT(-EINVAL, forkless_command_proc(NULL, "x"));
    EXPECT(-EINVAL, forkless_command_seccomp(NULL, NULL, 0));
    EXPECT(-EINVAL, forkless_command_call(NULL, 0, NULL, 0, -1));
    EXPECT(-EINVAL, forkless_command_hand_back(NULL, 0));
}

/* The setter fails. The command is then not run without it. */
#define REFUSED(errnum, setter)                                             \
    do {                                                                    \
        EXPECT(errnum, setter);                                             \
        EXPECT(errnum, forkless_command_spawn(command, &no_child, &why));   \
        EXPECT(FORKLESS_STEP_CHECK, why.step);                              \
        CHECK(strstr(why.message, "an earlier setter failed: ") == why.message); \
        forkless_command_free(command);                                     \
        EXPECT(0, forkless_command_new("true", &command));                  \
    } while (0)

static forkless_child *no_child;
static forkless_error why;

/* Null pointers as strings or lists, and invalid descriptors. */
static void no_text(void) {
    REFUSED(-EINVAL, forkless_command_or_else(command, NULL));
    REFUSED(-EINVAL, forkless_command_arg(command, NULL));
    REFUSED(-EINVAL, forkless_command_args(command, NULL));
    REFUSED(-EINVAL, forkless_command_arg0(command, NULL));
    REFUSED(-EINVAL, forkless_command_env(command, NULL, "x"));
    REFUSED(-EINVAL, forkless_command_env(command, "x", NULL));
    REFUSED(-EINVAL, forkless_command_env_remove(command, NULL));
    REFUSED(-EINVAL, forkless_command_envs(command, NULL));
    REFUSED(-EINVAL, forkless_command_current_dir(command, NULL));
    REFUSED(-EINVAL, forkless_command_chroot(command, NULL));
    REFUSED(-EINVAL, forkless_command_fd_open(command, 0, NULL, 0, 0));
    REFUSED(-EINVAL, forkless_command_groups(command, NULL, 1));
    REFUSED(-EINVAL, forkless_command_user(command, NULL));
    REFUSED(-EINVAL, forkless_command_group(command, NULL));
    REFUSED(-EINVAL, forkless_command_cpu_affinity(command, NULL, 1));
    REFUSED(-EINVAL, forkless_command_hostname(command, NULL));
    REFUSED(-EINVAL, forkless_command_mount(command, NULL, NULL, NULL, 0, NULL));
    REFUSED(-EINVAL, forkless_command_bind(command, NULL, "x"));
    REFUSED(-EINVAL, forkless_command_bind(command, "x", NULL));
    REFUSED(-EINVAL, forkless_command_bind_read_only(command, NULL, "x"));
    REFUSED(-EINVAL, forkless_command_read_only(command, NULL));
    REFUSED(-EINVAL, forkless_command_mount_attributes(command, NULL, 0, 0));
    REFUSED(-EINVAL, forkless_command_file_system(command, NULL, list, 0, "x"));
    REFUSED(-EINVAL, forkless_command_file_system(command, "x", NULL, 0, "x"));
    REFUSED(-EINVAL, forkless_command_file_system(command, "x", list, 0, NULL));
    REFUSED(-EINVAL, forkless_command_attach_mount(command, 0, NULL));
    REFUSED(-EINVAL, forkless_command_overlay(command, NULL, NULL, NULL, "x"));
    REFUSED(-EINVAL, forkless_command_unmount(command, NULL));
    REFUSED(-EINVAL, forkless_command_make_dir(command, NULL, 0));
    REFUSED(-EINVAL, forkless_command_make_symlink(command, NULL, "x"));
    REFUSED(-EINVAL, forkless_command_devices(command, NULL));
    REFUSED(-EINVAL, forkless_command_tmpfs(command, NULL, "x"));
    REFUSED(-EINVAL, forkless_command_tmpfs(command, "x", NULL));
    REFUSED(-EINVAL, forkless_command_proc(command, NULL));
    REFUSED(-EINVAL, forkless_command_pivot_root(command, NULL));
    REFUSED(-EINVAL, forkless_command_seccomp(command, NULL, 1));
    REFUSED(-EINVAL, forkless_command_call(command, 0, NULL, 1, -1));
    REFUSED(-EBADF, forkless_command_program_fd(command, -1));
    REFUSED(-EBADF, forkless_command_program_fd(command, 999));
    REFUSED(-EBADF, forkless_command_current_dir_fd(command, -5));
    REFUSED(-EBADF, forkless_command_cgroup(command, 999));
    REFUSED(-EBADF, forkless_command_landlock(command, -1));
    REFUSED(-EBADF, forkless_command_join(command, 0x20000, 999));
    REFUSED(-EBADF, forkless_command_attach_mount(command, 999, "x"));
    REFUSED(-EBADF, forkless_command_controlling_terminal(command, -1));
    REFUSED(-EBADF, forkless_command_foreground(command, -1));
}

static void no_line(void) {
    forkless_child *child = NULL;
    forkless_ending *ending = NULL;
    int status = 0;
    EXPECT(-EINVAL, forkless_command_spawn_line(NULL, &child, &ending, NULL));
    EXPECT(-EINVAL, forkless_command_spawn_line(command, NULL, &ending, NULL));
    EXPECT(-EINVAL, forkless_command_spawn_line(command, &child, NULL, NULL));
    EXPECT(-EINVAL, forkless_command_spawn_line(command, &child, &ending, NULL)); /* no line */
    CHECK(child == NULL && ending == NULL);
    EXPECT(-EINVAL, forkless_ending_status(NULL, 0, &status, NULL));
    EXPECT(-EINVAL, forkless_ending_route(NULL, text, sizeof text));
    forkless_ending_free(NULL);
}

static void no_pipeline(void) {
    forkless_pipeline *pipeline = NULL;
    forkless_child *child = NULL;
    forkless_prepared *prepared = NULL;
    forkless_output *output = NULL;
    forkless_error error;
    forkless_capture how = FORKLESS_CAPTURE_INIT;
    int status = 77;
    EXPECT(-EINVAL, forkless_pipeline_new(NULL));
    EXPECT(-EINVAL, forkless_pipeline_command(NULL, command, NULL));
    EXPECT(-EINVAL, forkless_pipeline_prepared(NULL, NULL));
    EXPECT(-EINVAL, forkless_pipeline_pipefail(NULL, 1));
    EXPECT(-EINVAL, forkless_pipeline_count(NULL));
    EXPECT(-EINVAL, forkless_pipeline_spawn(NULL, 1, &child, NULL));
    EXPECT(-EINVAL, forkless_pipeline_status(NULL, 0, NULL, &status, NULL));
    EXPECT(-EINVAL, forkless_pipeline_capture(NULL, NULL, 0, NULL, &output, NULL));
    EXPECT(0, forkless_pipeline_new(&pipeline));
    EXPECT(-EINVAL, forkless_pipeline_command(pipeline, NULL, NULL));
    EXPECT(-EINVAL, forkless_pipeline_prepared(pipeline, NULL));
    EXPECT(0, forkless_pipeline_count(pipeline));
    /* Without a program. */
    EXPECT(-EINVAL, forkless_pipeline_status(pipeline, 0, NULL, &status, &error));
    EXPECT(FORKLESS_STEP_CHECK, error.step);
    EXPECT(-EINVAL, forkless_pipeline_spawn(pipeline, 0, &child, NULL));
    EXPECT(-EINVAL, forkless_pipeline_capture(pipeline, NULL, 0, NULL, &output, NULL));
    EXPECT(0, forkless_pipeline_command(pipeline, command, NULL));
    EXPECT(0, forkless_command_prepare(command, &prepared, NULL));
    EXPECT(0, forkless_pipeline_prepared(pipeline, prepared));
    forkless_prepared_free(prepared);
    EXPECT(2, forkless_pipeline_count(pipeline));
    /* With a null pointer for the result. */
    EXPECT(-EINVAL, forkless_pipeline_spawn(pipeline, 1, &child, NULL));
    EXPECT(-EINVAL, forkless_pipeline_spawn(pipeline, 2, NULL, NULL));
    EXPECT(-EINVAL, forkless_pipeline_status(pipeline, 0, NULL, NULL, NULL));
    EXPECT(-EINVAL, forkless_pipeline_status(pipeline, 2, NULL, &status, NULL));
    EXPECT(-EINVAL, forkless_pipeline_capture(pipeline, NULL, 0, NULL, NULL, NULL));
    EXPECT(-EINVAL, forkless_pipeline_capture(pipeline, NULL, 2, NULL, &output, NULL));
    how.flags = FORKLESS_CAPTURE_MEMORY_FILE;
    EXPECT(-EINVAL, forkless_pipeline_capture(pipeline, &how, 0, NULL, &output, NULL));
    how.size = 1;
    EXPECT(-EINVAL, forkless_pipeline_capture(pipeline, &how, 0, NULL, &output, NULL));
    forkless_pipeline_free(pipeline);
    forkless_pipeline_free(NULL);
    CHECK(child == NULL && output == NULL);
    EXPECT(77, status);
}

static void no_cgroup(void) {
    forkless_cgroup *group = NULL;
    uint64_t number = 77;
    /* -ENOENT without a version 2 hierarchy. */
    CHECK(forkless_cgroup_own(NULL, sizeof text, NULL) < 0);
    EXPECT(-EINVAL, forkless_cgroup_hand_down(NULL, list, NULL));
    EXPECT(-EINVAL, forkless_cgroup_hand_down("/", NULL, NULL));
    EXPECT(-EINVAL, forkless_cgroup_create(NULL, "x", &group, NULL));
    EXPECT(-EINVAL, forkless_cgroup_create("/", NULL, &group, NULL));
    EXPECT(-EINVAL, forkless_cgroup_create("/", "x", NULL, NULL));
    EXPECT(-EILSEQ, forkless_cgroup_create("/", "\xff", &group, NULL));
    EXPECT(-EINVAL, forkless_cgroup_with_limits("/", NULL, &group, NULL));
    EXPECT(-EINVAL, forkless_cgroup_with_limits("/", list, NULL, NULL));
    char *odd[] = {(char *)"pids.max", NULL};
    EXPECT(-EINVAL, forkless_cgroup_with_limits("/", odd, &group, NULL));
    EXPECT(-EINVAL, forkless_cgroup_signal(NULL, 15, NULL));
    EXPECT(-EINVAL, forkless_cgroup_end(NULL, NULL));
    EXPECT(-EINVAL, forkless_cgroup_remove(NULL, NULL));
    EXPECT(-EINVAL, forkless_cgroup_path(NULL, text, sizeof text, NULL));
    EXPECT(-EINVAL, forkless_cgroup_directory(NULL, NULL));
    EXPECT(-EINVAL, forkless_cgroup_memory_max(NULL, 1, NULL));
    EXPECT(-EINVAL, forkless_cgroup_memory_high(NULL, 1, NULL));
    EXPECT(-EINVAL, forkless_cgroup_memory_swap_max(NULL, 1, NULL));
    EXPECT(-EINVAL, forkless_cgroup_pids_max(NULL, 1, NULL));
    EXPECT(-EINVAL, forkless_cgroup_cpu_max(NULL, 1, 1, NULL));
    EXPECT(-EINVAL, forkless_cgroup_cpu_weight(NULL, 1, NULL));
    EXPECT(-EINVAL, forkless_cgroup_io_weight(NULL, 1, NULL));
    EXPECT(-EINVAL, forkless_cgroup_set(NULL, "x", "x", NULL));
    EXPECT(-EINVAL, forkless_cgroup_get(NULL, "x", text, sizeof text, NULL));
    EXPECT(-EINVAL, forkless_cgroup_counter(NULL, "x", "x", &number, NULL));
    EXPECT(-EINVAL, forkless_cgroup_memory_peak(NULL, &number, NULL));
    EXPECT(-EINVAL, forkless_cgroup_pids_peak(NULL, &number, NULL));
    EXPECT(-EINVAL, forkless_cgroup_oom_kills(NULL, &number, NULL));
    EXPECT(-EINVAL, forkless_cgroup_cpu_time(NULL, &number, NULL));
    EXPECT(-EINVAL, forkless_cgroup_freeze(NULL, NULL));
    EXPECT(-EINVAL, forkless_cgroup_thaw(NULL, NULL));
    EXPECT(-EINVAL, forkless_cgroup_wait_frozen(NULL, 0, NULL));
    EXPECT(-EINVAL, forkless_cgroup_wait_empty(NULL, 0, NULL));
    EXPECT(-EINVAL, forkless_cgroup_kill(NULL, NULL));
    EXPECT(-EINVAL, forkless_cgroup_terminate(NULL, 15, 0, NULL));
    forkless_cgroup_free(NULL);
    CHECK(group == NULL);
    EXPECT(77, number);
}

static void no_sandbox(void) {
    forkless_sandbox *sandbox = NULL;
    forkless_error error;
    forkless_sandbox_options options = FORKLESS_SANDBOX_INIT;
    EXPECT(-EINVAL, forkless_sandbox_landlock(NULL, &sandbox, NULL));
    EXPECT(-EINVAL, forkless_sandbox_landlock(&options, NULL, NULL));
    EXPECT(-EINVAL, forkless_sandbox_namespaces(NULL, &sandbox, NULL));
    EXPECT(-EINVAL, forkless_sandbox_namespaces(&options, NULL, NULL));
    options.flags = FORKLESS_SANDBOX_NETWORK | FORKLESS_SANDBOX_NETWORK_REFUSED;
    EXPECT(-EINVAL, forkless_sandbox_namespaces(&options, &sandbox, NULL));
    options.flags = FORKLESS_SANDBOX_CHANGE_ATTRIBUTES;
    EXPECT(-EINVAL, forkless_sandbox_namespaces(&options, &sandbox, NULL));
    options.flags = 32;
    EXPECT(-EINVAL, forkless_sandbox_landlock(&options, &sandbox, &error));
    EXPECT(FORKLESS_STEP_CHECK, error.step);
    options.flags = 0;
    options.size = 1;
    EXPECT(-EINVAL, forkless_sandbox_landlock(&options, &sandbox, NULL));
    REFUSED(-EINVAL, forkless_command_sandbox(command, NULL));
    EXPECT(-EINVAL, forkless_command_sandbox(NULL, NULL));
    EXPECT(-EINVAL, forkless_sandbox_check(NULL, NULL));
    forkless_sandbox_free(NULL);
    CHECK(sandbox == NULL);
}

static void no_pty(void) {
    forkless_pty *pty = NULL;
    forkless_child *child = NULL;
    forkless_output *output = NULL;
    struct winsize size = {1, 2, 3, 4};
    EXPECT(-EINVAL, forkless_pty_open(&size, NULL, NULL));
    EXPECT(-EINVAL, forkless_command_pty(NULL, pty));
    REFUSED(-EINVAL, forkless_command_pty(command, NULL));
    EXPECT(-EINVAL, forkless_pty_fd(NULL));
    EXPECT(-EINVAL, forkless_pty_read(NULL, text, sizeof text));
    EXPECT(-EINVAL, forkless_pty_write(NULL, text, sizeof text));
    EXPECT(-EINVAL, forkless_pty_send_eof(NULL));
    EXPECT(-EINVAL, forkless_pty_read_until_exit(NULL, child, 0, &output, NULL));
    EXPECT(-EINVAL, forkless_pty_size(NULL, &size));
    EXPECT(-EINVAL, forkless_pty_resize(NULL, &size));
    EXPECT(-EINVAL, forkless_pty_make_raw(NULL));
    EXPECT(-EINVAL, forkless_pty_echo(NULL, 1));
    EXPECT(-EINVAL, forkless_pty_copy_modes(NULL, 0));
    EXPECT(-EINVAL, forkless_pty_set_nonblocking(NULL, 1));
    EXPECT(-EINVAL, forkless_pty_foreground_group(NULL));
    EXPECT(-EINVAL, forkless_pty_path(NULL, text, sizeof text));
    EXPECT(-EINVAL, forkless_pty_follower(NULL));
    forkless_pty_free(NULL);
    CHECK(pty == NULL && child == NULL && output == NULL && size.ws_col == 2);
}

static void no_warm(void) {
    forkless_warm *warm = NULL;
    forkless_warm_options how = FORKLESS_WARM_INIT;
    forkless_warm_stats stats;
    forkless_command *command;
    pid_t pid = 77;
    EXPECT(-EINVAL, forkless_warm_open(NULL, NULL, NULL));
    how.library = "libforkless_warm.so";
    CHECK(forkless_warm_open(&how, &warm, NULL) < 0);
    how.size = 1;
    EXPECT(-EINVAL, forkless_warm_open(&how, &warm, NULL));
    EXPECT(0, forkless_command_new("true", &command));
    EXPECT(-EINVAL, forkless_command_warm(command, NULL));
    EXPECT(-EINVAL, forkless_command_warm(NULL, NULL));
    forkless_command_free(command);
    EXPECT(-EINVAL, forkless_warm_start(NULL, NULL, NULL));
    EXPECT(-EINVAL, forkless_warm_templates(NULL, &pid, 1));
    EXPECT(-EINVAL, forkless_warm_get_stats(NULL, &stats, sizeof stats));
    EXPECT(-EINVAL, forkless_child_cold_reason(NULL, NULL, 0));
    forkless_warm_free(NULL);
    CHECK(warm == NULL && pid == 77);
}

static int never(const void *bytes, size_t size) {
    return bytes == NULL && size > 0;
}

static void no_zygote(void) {
    forkless_zygote *zygote = NULL;
    forkless_prepared *prepared = NULL;
    forkless_child *child = NULL;
    forkless_output *output = NULL;
    forkless_zygote_options how = FORKLESS_ZYGOTE_INIT;
    forkless_zygote_stats stats;
    forkless_zygote_entry no_name = {NULL, never}, no_function = {"x", NULL};
    int status = 77;
    EXPECT(-EINVAL, forkless_zygote_serve_if_asked(NULL, 1));
    EXPECT(-EINVAL, forkless_zygote_serve_if_asked(&no_name, 1));
    EXPECT(-EINVAL, forkless_zygote_serve_if_asked(&no_function, 1));
    /* This program does not call forkless_zygote_serve_if_asked. */
    EXPECT(-EINVAL, forkless_zygote_start(&how, &zygote, NULL));
    EXPECT(-EINVAL, forkless_zygote_start(NULL, NULL, NULL));
    how.restart = 5;
    EXPECT(-EINVAL, forkless_zygote_start(&how, &zygote, NULL));
    how.size = 1;
    EXPECT(-EINVAL, forkless_zygote_start(&how, &zygote, NULL));
    EXPECT(0, forkless_zygote_serve_if_asked(NULL, 0));
    EXPECT(-EINVAL, forkless_zygote_spawn(NULL, prepared, &child, NULL));
    EXPECT(-EINVAL, forkless_zygote_launch(NULL, prepared, &child, NULL));
    EXPECT(-EINVAL, forkless_zygote_status(NULL, prepared, &status, NULL));
    EXPECT(-EINVAL, forkless_zygote_output(NULL, prepared, &output, NULL));
    EXPECT(-EINVAL, forkless_zygote_spawn_with(NULL, prepared, NULL, 0, &child, NULL));
    EXPECT(-EINVAL, forkless_zygote_launch_with(NULL, prepared, NULL, 0, &child, NULL));
    EXPECT(-EINVAL, forkless_zygote_pid(NULL));
    EXPECT(-EINVAL, forkless_zygote_get_stats(NULL, &stats, sizeof stats));
    forkless_zygote_free(NULL);
    CHECK(zygote == NULL && child == NULL && output == NULL);
    EXPECT(77, status);
}

static void no_result(void) {
    forkless_error error;
    forkless_child *child = NULL;
    forkless_prepared *prepared = NULL;
    forkless_output *output = NULL;
    forkless_waitset *set = NULL;
    forkless_usage usage;
    forkless_ended ended;
    int status = 77, errors[1];
    EXPECT(-EINVAL, forkless_command_new("x", NULL));
    EXPECT(-EINVAL, forkless_command_new(NULL, &command));
    EXPECT(-EINVAL, forkless_command_new_argv(NULL, &command));
    EXPECT(-EINVAL, forkless_command_new_argv(list + 1, &command));
    EXPECT(-EINVAL, forkless_command_spawn(command, NULL, &error));
    EXPECT(FORKLESS_STEP_CHECK, error.step);
    CHECK(error.message[0] != 0);
    EXPECT(-EINVAL, forkless_command_spawn(NULL, &child, NULL));
    EXPECT(-EINVAL, forkless_command_launch(NULL, &child, NULL));
    EXPECT(-EINVAL, forkless_command_launch(command, NULL, NULL));
    EXPECT(-EINVAL, forkless_command_status(NULL, &status, NULL));
    EXPECT(-EINVAL, forkless_command_status(command, NULL, NULL));
    EXPECT(-EINVAL, forkless_command_prepare(NULL, &prepared, NULL));
    EXPECT(-EINVAL, forkless_command_prepare(command, NULL, NULL));
    EXPECT(-EINVAL, forkless_command_capture(NULL, NULL, &output, NULL));
    EXPECT(-EINVAL, forkless_command_capture(command, NULL, NULL, NULL));
    EXPECT(-EINVAL, forkless_prepared_spawn(NULL, &child, NULL));
    EXPECT(-EINVAL, forkless_prepared_launch(NULL, &child, NULL));
    EXPECT(-EINVAL, forkless_prepared_status(NULL, &status, NULL));
    EXPECT(-EINVAL, forkless_prepared_capture(NULL, NULL, &output, NULL));
    EXPECT(-EINVAL, forkless_prepared_steps(NULL, text, sizeof text));
    EXPECT(-EINVAL, forkless_launch_all(NULL, 1, &child, errors));
    EXPECT(-EINVAL, forkless_launch_all(&prepared, 1, &child, errors));
    EXPECT(-EINVAL, forkless_launch_all(&prepared, 1, NULL, errors));
    EXPECT(0, forkless_launch_all(NULL, 0, NULL, NULL));
    EXPECT(-EINVAL, forkless_step_words(1, NULL, 5));
    EXPECT(-EINVAL, forkless_child_pid(NULL));
    EXPECT(-EINVAL, forkless_child_pidfd(NULL));
    EXPECT(-EINVAL, forkless_child_fd(NULL, 0));
    EXPECT(-EINVAL, forkless_child_take_fd(NULL, 0));
    EXPECT(-EINVAL, forkless_child_take_handed_back(NULL));
    EXPECT(-EINVAL, forkless_child_route(NULL, text, sizeof text));
    EXPECT(-EINVAL, forkless_child_launcher(NULL));
    EXPECT(-EINVAL, forkless_child_usage(NULL, &usage));
    EXPECT(-EINVAL, forkless_child_skipped(NULL, 0, &error));
    EXPECT(-EINVAL, forkless_child_kill_on_free(NULL, 0));
    EXPECT(-EINVAL, forkless_child_wait_exec(NULL, 0, NULL));
    EXPECT(-EINVAL, forkless_child_wait(NULL, &status, NULL));
    EXPECT(-EINVAL, forkless_child_try_wait(NULL, &status, NULL));
    EXPECT(-EINVAL, forkless_child_wait_timeout(NULL, 0, &status, NULL));
    EXPECT(-EINVAL, forkless_child_wait_change(NULL, 0, &status, NULL));
    EXPECT(-EINVAL, forkless_child_kill(NULL));
    EXPECT(-EINVAL, forkless_child_signal(NULL, 0));
    EXPECT(-EINVAL, forkless_child_signal_group(NULL, 0));
    EXPECT(-EINVAL, forkless_child_terminate(NULL, 0, 0, &status, NULL));
    EXPECT(-EINVAL, forkless_child_terminate_group(NULL, 0, 0, &status, NULL));
    EXPECT(-EINVAL, forkless_child_output(NULL, &output, NULL));
    no_line();
    no_pipeline();
    no_cgroup();
    no_sandbox();
    no_pty();
    no_zygote();
    no_warm();
    EXPECT(-EINVAL, forkless_waitset_new(NULL));
    EXPECT(-EINVAL, forkless_waitset_insert(NULL, child, NULL, NULL, NULL));
    EXPECT(-EINVAL, forkless_waitset_remove(NULL, 0, &child));
    EXPECT(-EINVAL, forkless_waitset_signal(NULL, 0, 1));
    EXPECT(-EINVAL, forkless_waitset_wait(NULL, 0, &ended, NULL));
    EXPECT(-EINVAL, forkless_waitset_count(NULL));
    EXPECT(-EINVAL, forkless_waitset_fd(NULL));
    EXPECT(0, forkless_waitset_new(&set));
    EXPECT(-EINVAL, forkless_waitset_insert(set, NULL, NULL, NULL, NULL));
    EXPECT(-EINVAL, forkless_waitset_wait(set, 0, NULL, NULL));
    EXPECT(-ENOENT, forkless_waitset_remove(set, 12345, &child));
    EXPECT(-ENOENT, forkless_waitset_signal(set, 12345, 1));
    EXPECT(0, forkless_waitset_wait(set, -1, &ended, NULL));
    forkless_waitset_free(set);
    EXPECT(-EINVAL, forkless_spawn(NULL, list, NULL));
    EXPECT(-EINVAL, forkless_spawn("x", NULL, NULL));
    EXPECT(-EINVAL, forkless_spawnp(NULL, list, NULL));
    EXPECT(-EINVAL, forkless_popen2(NULL, 0, NULL, NULL));
    CHECK(forkless_popenv(NULL, "r", 0) == NULL);
    CHECK(child == NULL && prepared == NULL && output == NULL);
    EXPECT(77, status);
    /* The _free functions accept null pointers. */
    forkless_command_free(NULL);
    forkless_prepared_free(NULL);
    forkless_child_free(NULL);
    forkless_output_free(NULL);
    forkless_waitset_free(NULL);
}

/* Functions that return an errno leave errno unchanged, and descriptors that the library keeps are close-on-exec. */
static void errno_and_copies(void) {
    enum { NUMBERS = 100 };
    int inherited[NUMBERS], kept = 0;
    forkless_command *other;
    for (int fd = 0; fd < NUMBERS; fd++) inherited[fd] = fcntl(fd, F_GETFD) >= 0;
    errno = 77;
    REFUSED(-EBADF, forkless_command_program_fd(command, 9999));
    EXPECT(77, errno);
    EXPECT(0, forkless_command_new("true", &other));
    EXPECT(0, forkless_command_program_fd(other, 0));
    EXPECT(77, errno);
    for (int fd = 0; fd < NUMBERS; fd++) {
        int flags = inherited[fd] ? -1 : fcntl(fd, F_GETFD);
        CHECK(flags < 0 || (flags & FD_CLOEXEC));
        kept += flags >= 0;
    }
    EXPECT(1, kept);
    forkless_command_free(other);
}

/* Names that no variable can have, and options that another version of the library would know. */
static void invalid_values_are_refused(void) {
    static const char *const names[] = {"", "=", "A=", "=A", "A=B"};
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        REFUSED(-EINVAL, forkless_command_env(command, names[n], "x"));
        REFUSED(-EINVAL, forkless_command_env_remove(command, names[n]));
    }
    REFUSED(-EBADF, forkless_command_fd(command, -1, 1));
    REFUSED(-EBADF, forkless_command_fd(command, 1, -1));
    REFUSED(-EBADF, forkless_command_fd_null(command, -1));
    REFUSED(-EBADF, forkless_command_fd_dup(command, 1, -1));
    REFUSED(-EINVAL, forkless_command_fd_pipe(command, 3));
    REFUSED(-EINVAL, forkless_command_rlimit(command, 99, 0, 0));
    REFUSED(-EINVAL, forkless_command_rlimit(command, -1, 0, 0));
    REFUSED(-EINVAL, forkless_command_scheduler(command, 4, 0));
    REFUSED(-EINVAL, forkless_command_scheduler(command, SCHED_BATCH, -1));
    REFUSED(-EINVAL, forkless_command_io_priority(command, 0, 0));
    REFUSED(-EINVAL, forkless_command_process_group(command, -1));
    REFUSED(-EINVAL, forkless_command_signal_block(command, 0));
    REFUSED(-EINVAL, forkless_command_signal_ignore(command, 65));
    REFUSED(-EINVAL, forkless_command_signal_default(command, -1));
    REFUSED(-EINVAL, forkless_command_signal_inherit(command, 1000));
    REFUSED(-EINVAL, forkless_command_unshare(command, 0));
    REFUSED(-EINVAL, forkless_command_unshare(command, 1));
    REFUSED(-EINVAL, forkless_command_join(command, CLONE_NEWNS | CLONE_NEWNET, 0));
    REFUSED(-EINVAL, forkless_command_overlay(command, (char *[]){"/", NULL}, "/tmp", NULL, "/mnt"));
    REFUSED(-EILSEQ, forkless_command_tmpfs(command, "/tmp", "\xff"));
    REFUSED(-EINVAL, forkless_command_best_effort(command, FORKLESS_STEP_EXEC));
    REFUSED(-EINVAL, forkless_command_best_effort(command, 9999));
    REFUSED(-EINVAL, forkless_command_pre_exec(command, NULL, NULL));
    forkless_call_arg bad[] = {{7, 0, NULL}};
    REFUSED(-EINVAL, forkless_command_call(command, 0, bad, 1, -1));
    REFUSED(-EINVAL, forkless_command_launcher(command, 3));
    REFUSED(-EINVAL, forkless_command_launcher(command, -1));
    forkless_capture options = FORKLESS_CAPTURE_INIT;
    forkless_output *output = NULL;
    static const int sizes[] = {-8, -1, 1, 8};
    for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++) {
        options.size = sizeof options + (size_t)sizes[n];
        EXPECT(-EINVAL, forkless_command_capture(command, &options, &output, NULL));
    }
    options.size = sizeof options;
    options.input = text;
    static const size_t huge[] = {SIZE_MAX, PTRDIFF_MAX, PTRDIFF_MAX - 100};
    for (size_t n = 0; n < sizeof huge / sizeof *huge; n++) {
        options.input_size = huge[n];
        EXPECT(-EINVAL, forkless_command_capture(command, &options, &output, NULL));
    }
    options.input = NULL, options.input_size = 0;
    options.flags = 1 << 10;
    EXPECT(-EINVAL, forkless_command_capture(command, &options, &output, NULL));
    CHECK(output == NULL);
}

int main(void) {
    EXPECT(0, forkless_command_new("true", &command));
    strcpy(text, "word");
    errno_and_copies();
    invalid_values_are_refused();
    no_command();
    no_text();
    no_result();
    /* The command can be prepared and described. */
    forkless_prepared *prepared;
    char steps[2048];
    EXPECT(0, forkless_command_arg(command, text));
    EXPECT(0, forkless_command_env(command, "A", text));
    EXPECT(0, forkless_command_prepare(command, &prepared, NULL));
    CHECK(forkless_prepared_steps(prepared, steps, sizeof steps) > 0);
    forkless_prepared_free(prepared);
    forkless_command_free(command);
    CHECK(strcmp(forkless_version(), "") != 0);
    return 0;
}
