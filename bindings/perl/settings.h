/* The settings that take one value, from the library's table of settings: `cargo xtask settings` writes what stands between the marks,
 * and the values in comments are for t/settings.t. SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef SETTINGS_H
#define SETTINGS_H

/* settings: begin */
#define SETTINGS_OF_ONE_VALUE \
    ONE(nice, "i"), /* 19 */ \
    ONE(timer_slack, "U"), /* 1000 */ \
    ONE(personality, "u"), /* 0 */ \
    ONE(oom_score_adj, "i"), /* 500 */ \
    ONE(memory_policy, "s"), /* local */ \
    ONE(memory_deny_write_execute, "i"), /* 1 */ \
    ONE(chroot, "s"), \
    ONE(umask, "u"), \
    ONE(controlling_terminal, "i"), \
    ONE(foreground, "i"), \
    ONE(no_new_privs, "i"), \
    ONE(parent_death_signal, "g"), \
    ONE(thread_death_signal, "g"), \
    ONE(hostname, "s"), \
    ONE(pivot_root, "s"), \
    ONE(cgroup, "f"), \
    ONE(memory_max, "s"), \
    ONE(tasks_max, "s"), \
    ONE(cpu_max, "s"), \
    ONE(io_max, "s"), \
    ONE(cgroup_parent, "s"), \
    ONE(bounding_set, "U"), \
    ONE(permitted, "U"), \
    ONE(effective, "U"), \
    ONE(inheritable, "U"), \
    ONE(ambient, "U"), \
    ONE(securebits, "u"), \
    ONE(kill_tree, "i"), \
    ONE(landlock, "f"), \

/* settings: end */
#endif
