/* Runs a program in the namespaces and mounts of `forkless run --sandbox`, with an init: what a careful program in C does for it.
 *
 *     namespaces PROGRAM [ARGS]... 9<FILTER
 */
#define _GNU_SOURCE
#include <err.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/mount.h>
#include <linux/seccomp.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define FILTER_FD 9
#define CHECK(call) do { if ((call) < 0) err(1, #call); } while (0)

static void write_to(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, strlen(text)) < 0) err(1, "%s", path);
    close(fd);
}

static void show(const char *from, const char *to, int is_directory) {
    if (is_directory) CHECK(mkdir(to, 0755));
    else CHECK(close(open(to, O_CREAT | O_WRONLY | O_CLOEXEC, 0644)));
    CHECK(mount(from, to, NULL, MS_BIND | MS_REC, NULL));
}

static void read_only(const char *path) {
    struct mount_attr attributes = { .attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV };
    CHECK(syscall(SYS_mount_setattr, AT_FDCWD, path, AT_RECURSIVE, &attributes, sizeof attributes));
}

static void new_tmpfs(const char *path, const char *options) {
    if (mkdir(path, 0755) < 0 && access(path, F_OK) < 0) err(1, "%s", path);
    CHECK(mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV, options));
}

static void make_root(void) {
    static const char *const shown[] = { "/usr", "/etc" };
    static const char *const links[][2] = { { "usr/bin", "bin" }, { "usr/sbin", "sbin" }, { "usr/lib", "lib" }, { "usr/lib64", "lib64" } };
    static const char *const devices[] = { "null", "zero", "full", "random", "urandom", "tty" };
    char path[32], from[64];
    CHECK(mount("none", "/", NULL, MS_REC | MS_SLAVE, NULL));
    CHECK(mount("tmpfs", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, "mode=755"));
    CHECK(chdir("/tmp"));
    for (size_t n = 0; n < 2; n++) {
        show(shown[n], shown[n] + 1, 1);
        read_only(shown[n] + 1);
    }
    for (size_t n = 0; n < 4; n++) CHECK(symlink(links[n][0], links[n][1]));
    CHECK(mkdir("proc", 0755));
    CHECK(mount("proc", "proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL));
    new_tmpfs("dev", "mode=755");
    for (size_t n = 0; n < 6; n++) {
        snprintf(path, sizeof path, "dev/%s", devices[n]);
        snprintf(from, sizeof from, "/%s", path);
        show(from, path, 0);
    }
    new_tmpfs("dev/shm", "mode=1777");
    new_tmpfs("tmp", "mode=1777");
    CHECK(syscall(SYS_pivot_root, ".", "."));
    CHECK(umount2(".", MNT_DETACH));
    CHECK(chdir("/"));
    CHECK(mount("none", "/", NULL, MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV, NULL));
}

static void bring_loopback_up(void) {
    struct ifreq request = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING };
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    CHECK(ioctl(fd, SIOCSIFFLAGS, &request));
    close(fd);
}

static void drop_rights(void) {
    struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
    struct __user_cap_data_struct none[2] = { { 0, 0, 0 }, { 0, 0, 0 } };
    static struct sock_filter filter[4096];
    for (int n = 0; prctl(PR_CAPBSET_DROP, n, 0, 0, 0) == 0; n++) {}
    CHECK(syscall(SYS_capset, &header, none));
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    ssize_t size = read(FILTER_FD, filter, sizeof filter);
    if (size <= 0) err(1, "the filter");
    close(FILTER_FD);
    struct sock_fprog program = { size / sizeof *filter, filter };
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
}

static int init(char **argv) {
    int status = 0, ended;
    setsid();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    bring_loopback_up();
    make_root();
    drop_rights();
    pid_t program = fork();
    CHECK(program);
    if (program == 0) {
        execvp(argv[0], argv);
        err(127, "%s", argv[0]);
    }
    while ((ended = wait(&status)) != program && ended > 0) {}
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int main(int argc, char **argv) {
    const int kinds = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP;
    char map[64], path[64], byte;
    int go_on[2], status;
    if (argc < 2) errx(1, "no program");
    CHECK(pipe2(go_on, O_CLOEXEC));
    snprintf(map, sizeof map, "%d %d 1", geteuid(), geteuid());
    pid_t child = syscall(SYS_clone, kinds | SIGCHLD, 0, 0, 0, 0);
    CHECK(child);
    if (child == 0) {
        close(go_on[1]);
        if (read(go_on[0], &byte, 1) != 1) return 1;
        return init(argv + 1);
    }
    snprintf(path, sizeof path, "/proc/%d/setgroups", child);
    write_to(path, "deny");
    snprintf(path, sizeof path, "/proc/%d/gid_map", child);
    write_to(path, map);
    snprintf(path, sizeof path, "/proc/%d/uid_map", child);
    write_to(path, map);
    CHECK(write(go_on[1], "x", 1));
    CHECK(waitpid(child, &status, 0));
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
