//! The system calls that a sandboxed program may use. Those that depend on an argument are in `filter`.
//!
//! Not listed, and so refused: new namespaces and mounts (setns, mount, fsopen, pivot_root, chroot, …), other processes'
//! memory and descriptors (ptrace, process_vm_readv, pidfd_getfd, kcmp), keyrings, and parts of the kernel that are large and
//! rarely needed (bpf, perf_event_open, io_uring, userfaultfd, fanotify, NUMA policies, file handles, asynchronous I/O), the machine as a whole
//! (clocks, modules, kexec, reboot, swap, quotas, accounting, the kernel's log, ports).

use nix::libc::*;

/// The newest call that this list knows: the last one of Linux 6.18.
pub(super) const NEWEST: u32 = 470;

/// Calls without a name in the libc crate, whose numbers are the same on all architectures.
#[rustfmt::skip]
const NEW: [c_long; 10] = [
    449, // futex_waitv
    451, // cachestat
    453, // map_shadow_stack
    454, // futex_wake
    455, // futex_wait
    456, // futex_requeue
    462, // mseal
    463, // setxattrat
    464, // getxattrat
    465, // listxattrat
];

#[rustfmt::skip]
pub(super) const ALLOWED: &[c_long] = &[
    // files
    SYS_close, SYS_close_range, SYS_read, SYS_write, SYS_pread64, SYS_pwrite64, SYS_readv,
    SYS_writev, SYS_preadv, SYS_pwritev, SYS_preadv2, SYS_pwritev2, SYS_lseek, SYS_fstat, SYS_newfstatat, SYS_statx,
    SYS_statfs, SYS_fstatfs, SYS_getdents64, SYS_readlinkat, SYS_faccessat, SYS_faccessat2,
    SYS_fchown, SYS_fchownat, SYS_ftruncate, SYS_truncate, SYS_fallocate, SYS_fadvise64, SYS_readahead, SYS_fsync,
    SYS_fdatasync, SYS_sync, SYS_syncfs, SYS_sync_file_range, SYS_utimensat, SYS_umask, SYS_chdir, SYS_fchdir, SYS_getcwd,
    SYS_linkat, SYS_symlinkat, SYS_unlinkat, SYS_renameat, SYS_renameat2, SYS_flock, SYS_fcntl,
    SYS_dup, SYS_dup3, SYS_pipe2, SYS_splice, SYS_tee, SYS_vmsplice, SYS_sendfile, SYS_copy_file_range, SYS_setxattr,
    SYS_lsetxattr, SYS_fsetxattr, SYS_getxattr, SYS_lgetxattr, SYS_fgetxattr, SYS_listxattr, SYS_llistxattr,
    SYS_flistxattr, SYS_removexattr, SYS_lremovexattr, SYS_fremovexattr, SYS_inotify_init1, SYS_inotify_add_watch,
    SYS_inotify_rm_watch, NEW[1], NEW[7], NEW[8], NEW[9], 466, // removexattrat
    // waiting for files
    SYS_ppoll, SYS_pselect6, SYS_epoll_create1, SYS_epoll_ctl, SYS_epoll_pwait, SYS_epoll_pwait2, SYS_eventfd2,
    SYS_signalfd4, SYS_timerfd_create, SYS_timerfd_settime, SYS_timerfd_gettime,
    // sockets
    SYS_bind, SYS_connect, SYS_listen, SYS_accept, SYS_accept4, SYS_getsockname, SYS_getpeername, SYS_sendto, SYS_recvfrom,
    SYS_sendmsg, SYS_recvmsg, SYS_sendmmsg, SYS_recvmmsg, SYS_setsockopt, SYS_getsockopt, SYS_shutdown,
    // memory
    SYS_munmap, SYS_mremap, SYS_mprotect, SYS_madvise, SYS_msync, SYS_mincore, SYS_mlock, SYS_mlock2, SYS_munlock,
    SYS_mlockall, SYS_munlockall, SYS_brk, SYS_membarrier, SYS_pkey_mprotect, SYS_pkey_alloc,
    SYS_pkey_free, SYS_remap_file_pages, NEW[2], NEW[6],
    // processes and threads
    SYS_execve, SYS_execveat, SYS_exit, SYS_exit_group, SYS_wait4, SYS_waitid, SYS_kill, SYS_tkill, SYS_tgkill,
    SYS_pidfd_open, SYS_pidfd_send_signal, SYS_getpid, SYS_getppid, SYS_gettid, SYS_getpgid, SYS_setpgid, SYS_getsid,
    SYS_setsid, SYS_set_tid_address, SYS_set_robust_list, SYS_get_robust_list, SYS_futex, NEW[0], NEW[3], NEW[4], NEW[5],
    SYS_rseq, SYS_restart_syscall, SYS_prctl, SYS_seccomp, SYS_landlock_create_ruleset, SYS_landlock_add_rule,
    SYS_landlock_restrict_self, SYS_getrusage, SYS_getrlimit, SYS_setrlimit, SYS_prlimit64, SYS_times, SYS_sysinfo,
    SYS_uname, SYS_getrandom, SYS_getcpu,
    // signals
    SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_rt_sigpending, SYS_rt_sigreturn, SYS_rt_sigsuspend, SYS_rt_sigtimedwait,
    SYS_rt_sigqueueinfo, SYS_rt_tgsigqueueinfo, SYS_sigaltstack,
    // scheduling and time
    SYS_sched_yield, SYS_sched_getaffinity, SYS_sched_setaffinity, SYS_sched_getparam, SYS_sched_setparam,
    SYS_sched_getscheduler, SYS_sched_setscheduler, SYS_sched_getattr, SYS_sched_setattr, SYS_sched_get_priority_max,
    SYS_sched_get_priority_min, SYS_sched_rr_get_interval, SYS_getpriority, SYS_setpriority, SYS_ioprio_get, SYS_ioprio_set,
    SYS_nanosleep, SYS_clock_nanosleep, SYS_clock_gettime, SYS_clock_getres, SYS_gettimeofday, SYS_getitimer, SYS_setitimer,
    SYS_timer_create, SYS_timer_settime, SYS_timer_gettime, SYS_timer_getoverrun, SYS_timer_delete,
    // ids and capabilities: the program can get no others
    SYS_getuid, SYS_geteuid, SYS_getgid, SYS_getegid, SYS_getresuid, SYS_getresgid, SYS_getgroups, SYS_setuid, SYS_setgid,
    SYS_setreuid, SYS_setregid, SYS_setresuid, SYS_setresgid, SYS_setfsuid, SYS_setfsgid, SYS_setgroups, SYS_capget,
    SYS_capset,
];

/// System V and POSIX inter-process communication, in a namespace of its own.
#[rustfmt::skip]
pub(super) const IPC: &[c_long] = &[
    SYS_shmat, SYS_shmdt, SYS_shmctl, SYS_semget, SYS_semop, SYS_semtimedop, SYS_semctl, SYS_msgget, SYS_msgsnd,
    SYS_msgrcv, SYS_msgctl, SYS_mq_open, SYS_mq_unlink, SYS_mq_timedsend, SYS_mq_timedreceive, SYS_mq_notify,
    SYS_mq_getsetattr,
];

/// Calls that change modes, owners, times and extended attributes of files. `utimensat` depends on an argument.
#[rustfmt::skip]
pub(super) const ATTRIBUTES: &[c_long] = &[
    SYS_fchmod, SYS_fchmodat, 452, /* fchmodat2 */ SYS_fchown, SYS_fchownat, SYS_setxattr, SYS_lsetxattr, SYS_fsetxattr,
    SYS_removexattr, SYS_lremovexattr, SYS_fremovexattr, NEW[7], 466, // removexattrat
    #[cfg(target_arch = "x86_64")] SYS_chmod,
    #[cfg(target_arch = "x86_64")] SYS_chown,
    #[cfg(target_arch = "x86_64")] SYS_lchown,
    #[cfg(target_arch = "x86_64")] SYS_utime,
    #[cfg(target_arch = "x86_64")] SYS_utimes,
    #[cfg(target_arch = "x86_64")] SYS_futimesat,
];

/// Calls that send a signal.
#[rustfmt::skip]
pub(super) const SIGNALS: &[c_long] = &[
    SYS_kill, SYS_tkill, SYS_tgkill, SYS_rt_sigqueueinfo, SYS_rt_tgsigqueueinfo, SYS_pidfd_send_signal,
];

/// Older calls that only x86-64 has.
#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
pub(super) const OLDER: &[c_long] = &[
    SYS_stat, SYS_lstat, SYS_access, SYS_readlink, SYS_chown, SYS_lchown, SYS_link, SYS_symlink,
    SYS_unlink, SYS_rename, SYS_rmdir, SYS_getdents, SYS_dup2, SYS_pipe, SYS_utime, SYS_utimes,
    SYS_futimesat, SYS_inotify_init, SYS_poll, SYS_select, SYS_epoll_create, SYS_epoll_wait, SYS_eventfd, SYS_signalfd,
    SYS_fork, SYS_vfork, SYS_getpgrp, SYS_pause, SYS_alarm, SYS_time, SYS_arch_prctl,
];
#[cfg(not(target_arch = "x86_64"))]
pub(super) const OLDER: &[c_long] = &[];
