/* Every function of forkless.h that sets something of a command, by its name: t/settings.t compares them with the header.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "setting.h"
#include "settings.h"

#include <errno.h>
#include <string.h>

#define ONE(name, kinds) { #name, kinds, (void (*)(void))forkless_command_##name }

/* Not here, since they are no settings or take what is C's alone: new, new_argv, free, spawn, launch, status, prepare, capture, pre_exec,
 * call and warm (which have a place of their own in Forkless.xs). */
const struct setting settings[] = {
    ONE(or_else, "s"), ONE(program_fd, "f"), ONE(arg, "s"), ONE(args, "L"), ONE(arg0, "s"), ONE(env, "ss"),
    ONE(env_remove, "s"), ONE(env_clear, ""), ONE(envs, "L"), ONE(current_dir, "s"), ONE(current_dir_fd, "f"),
    ONE(fd, "if"), ONE(fd_inherit, "i"), ONE(fd_null, "i"), ONE(fd_pipe, "i"), ONE(fd_socketpair, "i"), ONE(fd_dup, "ii"),
    ONE(fd_open, "isiu"), ONE(inherit_all, "i"), ONE(setsid, "i"), ONE(process_group, "i"),
    ONE(signal_default, "g"), ONE(signal_ignore, "g"), ONE(signal_inherit, "g"), ONE(signal_block, "g"),
    ONE(inherit_signal_mask, "i"), ONE(pidfd, "i"), ONE(kill_on_free, "i"), ONE(keep_record_locks, "i"), ONE(autoreap, "i"), ONE(pidfd_autokill, "i"), ONE(retry_busy, "u"), ONE(best_effort, "i"),
    ONE(scripts_by_shell, "i"),
    ONE(launcher, "i"), ONE(uid, "u"), ONE(gid, "u"), ONE(groups, "N"), ONE(user, "s"), ONE(group, "s"),
    ONE(rlimit, "iUU"), ONE(scheduler, "ii"), ONE(cpu_affinity, "N"), ONE(io_priority, "ii"),
    ONE(unshare, "U"), ONE(join, "Uf"), ONE(map_uid, "uuu"), ONE(map_gid, "uuu"),
    ONE(mount, "SsSUS"), ONE(bind, "ss"), ONE(bind_read_only, "ss"), ONE(read_only, "s"), ONE(mount_attributes, "sUU"),
    ONE(file_system, "sLUs"), ONE(attach_mount, "fs"), ONE(overlay, "LSSs"), ONE(unmount, "s"), ONE(make_dir, "su"),
    ONE(make_symlink, "ss"), ONE(devices, "s"), ONE(tmpfs, "ss"), ONE(proc, "s"),
    ONE(seccomp, "B"), ONE(hand_back, "u"),
    SETTINGS_OF_ONE_VALUE
    { NULL, NULL, NULL },
};

typedef forkless_command command;

/* Cast the function to the type that its letters describe. */
#define AS(...) ((int (*)(command *, __VA_ARGS__))setting->function)
#define INT(n) (int)a[n].number
#define UNSIGNED(n) (unsigned)a[n].number
#define TEXT(n) a[n].text
#define BITS(n) a[n].bits

static int apply_one(const struct setting *setting, command *c, const struct argument *a) {
    switch (setting->kinds[0]) {
    case 'i': case 'f': case 'g': return AS(int)(c, INT(0));
    case 'u': return AS(unsigned)(c, UNSIGNED(0));
    case 'U': return AS(uint64_t)(c, BITS(0));
    case 's': return AS(const char *)(c, TEXT(0));
    case 'L': return AS(char *const *)(c, a[0].texts);
    /* CPU numbers and group IDs are both 32 bits wide. */
    case 'N':
        return strcmp(setting->name, "groups") == 0 ? AS(const gid_t *, size_t)(c, (const gid_t *)a[0].numbers, a[0].count)
                                                    : AS(const int *, size_t)(c, a[0].numbers, a[0].count);
    case 'B': return AS(const struct sock_filter *, size_t)(c, (const struct sock_filter *)a[0].text, a[0].count / 8);
    default: return -EINVAL;
    }
}

int setting_apply(const struct setting *setting, forkless_command *c, const struct argument *a) {
    const char *kinds = setting->kinds;
#define IS(letters) (strcmp(kinds, letters) == 0)
    if (IS("")) return ((int (*)(command *))setting->function)(c);
    if (kinds[1] == '\0') return apply_one(setting, c, a);
    if (IS("ii") || IS("if")) return AS(int, int)(c, INT(0), INT(1));
    if (IS("ss")) return AS(const char *, const char *)(c, TEXT(0), TEXT(1));
    if (IS("su")) return AS(const char *, mode_t)(c, TEXT(0), UNSIGNED(1));
    if (IS("fs")) return AS(int, const char *)(c, INT(0), TEXT(1));
    if (IS("Uf")) return AS(uint64_t, int)(c, BITS(0), INT(1));
    if (IS("iUU")) return AS(int, uint64_t, uint64_t)(c, INT(0), BITS(1), BITS(2));
    if (IS("sUU")) return AS(const char *, uint64_t, uint64_t)(c, TEXT(0), BITS(1), BITS(2));
    if (IS("uuu")) return AS(uint32_t, uint32_t, uint32_t)(c, UNSIGNED(0), UNSIGNED(1), UNSIGNED(2));
    if (IS("isiu")) return AS(int, const char *, int, mode_t)(c, INT(0), TEXT(1), INT(2), UNSIGNED(3));
    if (IS("sLUs")) return AS(const char *, char *const *, uint64_t, const char *)(c, TEXT(0), a[1].texts, BITS(2), TEXT(3));
    if (IS("LSSs"))
        return AS(char *const *, const char *, const char *, const char *)(c, a[0].texts, TEXT(1), TEXT(2), TEXT(3));
    if (IS("SsSUS"))
        return AS(const char *, const char *, const char *, unsigned long, const char *)(c, TEXT(0), TEXT(1), TEXT(2),
                                                                                         (unsigned long)BITS(3), TEXT(4));
    return -EINVAL;
#undef IS
}
