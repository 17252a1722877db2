/* The two versions of posix_spawn and posix_spawnp that glibc has on x86-64. The old one runs a file without #! with
 * a shell, as execvp(3) does; the new one does not. Other architectures only have the new one. */

#include <spawn.h>

typedef const posix_spawn_file_actions_t *actions;
typedef const posix_spawnattr_t *attributes;

#define FORWARD(name, to)                                                                                              \
    extern int to(pid_t *, const char *, actions, attributes, char *const *, char *const *);                           \
    int name(pid_t *pid, const char *file, actions does, attributes has, char *const *argv, char *const *envp) {       \
        return to(pid, file, does, has, argv, envp);                                                                   \
    }

#ifdef __x86_64__
FORWARD(spawn_new, forkless_preload_posix_spawn)
FORWARD(spawnp_new, forkless_preload_posix_spawnp)
FORWARD(spawn_old, forkless_preload_posix_spawn_old)
FORWARD(spawnp_old, forkless_preload_posix_spawnp_old)
__asm__(".symver spawn_new, posix_spawn@@GLIBC_2.15");
__asm__(".symver spawnp_new, posix_spawnp@@GLIBC_2.15");
__asm__(".symver spawn_old, posix_spawn@GLIBC_2.2.5");
__asm__(".symver spawnp_old, posix_spawnp@GLIBC_2.2.5");
#else
FORWARD(posix_spawn, forkless_preload_posix_spawn)
FORWARD(posix_spawnp, forkless_preload_posix_spawnp)
#endif
