# The functions of libforkless.so.0 and of libc that this distribution calls.
#
# None of them may block for long: MoarVM compiles hot calls, and does not mark a compiled call as blocked. A collection of garbage
# in any thread would wait until it returns.
#
# Handles are integers: the address. An output parameter is a buffer, because `is rw` parameters are many times slower.
unit module Forkless::Native;

use NativeCall;

# FORKLESS_LIBRARY is the path of a library that the dynamic linker does not find.
sub library is export { %*ENV<FORKLESS_LIBRARY> || 'libforkless.so.0' }

sub forkless_version(--> Str) is native(&library) is export {*}

sub forkless_command_new(Blob, Blob --> int32) is native(&library) is export {*}
sub forkless_command_free(size_t) is native(&library) is export {*}
sub forkless_command_arg(size_t, Blob --> int32) is native(&library) is export {*}
sub forkless_command_arg0(size_t, Blob --> int32) is native(&library) is export {*}
sub forkless_command_envs(size_t, Blob --> int32) is native(&library) is export {*}
sub forkless_command_current_dir(size_t, Blob --> int32) is native(&library) is export {*}
sub forkless_command_fd(size_t, int32, int32 --> int32) is native(&library) is export {*}
sub forkless_command_fd_null(size_t, int32 --> int32) is native(&library) is export {*}
sub forkless_command_fd_pipe(size_t, int32 --> int32) is native(&library) is export {*}
sub forkless_command_fd_dup(size_t, int32, int32 --> int32) is native(&library) is export {*}
sub forkless_command_signal_default(size_t, int32 --> int32) is native(&library) is export {*}
sub forkless_command_inherit_signal_mask(size_t, int32 --> int32) is native(&library) is export {*}
sub forkless_command_scripts_by_shell(size_t, int32 --> int32) is native(&library) is export {*}
sub forkless_command_env(size_t, Blob, Blob --> int32) is native(&library) is export {*}
sub forkless_command_env_remove(size_t, Blob --> int32) is native(&library) is export {*}
sub forkless_command_env_clear(size_t --> int32) is native(&library) is export {*}
sub forkless_command_sandbox(size_t, size_t --> int32) is native(&library) is export {*}
sub forkless_command_pty(size_t, size_t --> int32) is native(&library) is export {*}
sub forkless_command_spawn(size_t, Blob, Blob --> int32) is native(&library) is export {*}
sub forkless_command_spawn_line(size_t, Blob, Blob, Blob --> int32) is native(&library) is export {*}

sub forkless_ending_free(size_t) is native(&library) is export {*}
sub forkless_ending_route(size_t, Blob, size_t --> int32) is native(&library) is export {*}
sub forkless_ending_status(size_t, int32, Blob, Blob --> int32) is native(&library) is export {*}

sub forkless_sandbox_namespaces(Blob, Blob, Blob --> int32) is native(&library) is export {*}
sub forkless_sandbox_landlock(Blob, Blob, Blob --> int32) is native(&library) is export {*}
sub forkless_sandbox_check(size_t, Blob --> int32) is native(&library) is export {*}
sub forkless_sandbox_free(size_t) is native(&library) is export {*}

sub forkless_pty_open(Blob, Blob, Blob --> int32) is native(&library) is export {*}
sub forkless_pty_free(size_t) is native(&library) is export {*}
sub forkless_pty_fd(size_t --> int32) is native(&library) is export {*}
sub forkless_pty_follower(size_t --> int32) is native(&library) is export {*}
sub forkless_pty_size(size_t, Blob --> int32) is native(&library) is export {*}
sub forkless_pty_resize(size_t, Blob --> int32) is native(&library) is export {*}
sub forkless_pty_echo(size_t, int32 --> int32) is native(&library) is export {*}
sub forkless_pty_make_raw(size_t --> int32) is native(&library) is export {*}
sub forkless_pty_send_eof(size_t --> int32) is native(&library) is export {*}
sub forkless_pty_path(size_t, Blob, size_t --> int32) is native(&library) is export {*}

sub forkless_child_free(size_t) is native(&library) is export {*}
sub forkless_child_pid(size_t --> int32) is native(&library) is export {*}
sub forkless_child_pidfd(size_t --> int32) is native(&library) is export {*}
sub forkless_child_take_fd(size_t, int32 --> int32) is native(&library) is export {*}
sub forkless_child_try_wait(size_t, Blob, Blob --> int32) is native(&library) is export {*}
sub forkless_child_signal(size_t, int32 --> int32) is native(&library) is export {*}
sub forkless_child_limit_events(size_t, Blob --> int32) is native(&library) is export {*}

sub read(int32, Blob, size_t --> ssize_t) is native is export {*}
sub write(int32, Blob, size_t --> ssize_t) is native is export {*}
sub close(int32 --> int32) is native is export {*}
sub memfd_create(Str, uint32 --> int32) is native is export {*}
sub poll(Blob, ulong, int32 --> int32) is native is export {*}
sub fcntl(int32, int32, int32 --> int32) is native is export {*}
sub epoll_create1(int32 --> int32) is native is export {*}
sub epoll_ctl(int32, int32, int32, Blob --> int32) is native is export {*}
sub epoll_wait(int32, Blob, int32, int32 --> int32) is native is export {*}

constant POLLIN is export = 1;
constant POLLOUT is export = 4;
constant POLLERR is export = 8;
constant POLLHUP is export = 16;

# struct pollfd: int fd, short events, short revents.
sub pollfds(*@wanted --> buf8) is export {
    my $fds = buf8.allocate(8 * @wanted);
    for @wanted.kv -> $n, (:key($fd), :value($events)) {
        $fds.write-int32(8 * $n, $fd);
        $fds.write-int16(8 * $n + 4, $events);
    }
    $fds
}

# The events that poll(2) has found for the entry of this index.
sub found(buf8 $fds, Int $n --> Int) is export { $fds.read-int16(8 * $n + 6) }

# The address of the buffer's content, which stays there while the buffer exists and is not resized.
sub address(Blob $bytes --> Int) is export { +nativecast(Pointer, $bytes) }
