/* Settings of the child, filled in by wishes.rs. */
#ifndef FORKLESS_BENCH_SETTINGS_H
#define FORKLESS_BENCH_SETTINGS_H

#include <linux/filter.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct bench_limit {
    unsigned resource;
    uint64_t value;
};

struct bench_wishes {
    int change_ids;
    unsigned id;         /* user and group */
    const char *uid_map; /* null: no user namespace */
    const char *gid_map;
    int deny_setgroups;
    int cgroup; /* directory of the cgroup, or -1 */
    const struct bench_limit *limits;
    size_t limit_count;
    struct sock_filter *filter; /* with no_new_privs */
    uint16_t filter_length;     /* 0: neither */
};

/* Forks, applies the settings in the child and executes. Returns as fork(2) does. */
pid_t bench_fork_with(const struct bench_wishes *wishes, const char *path, char *const *argv, char *const *envp);

#endif
