unit module Forkless;

use Forkless::Native;
use Forkless::Proc;
use Forkless::Proc::Async;

our sub library-version(--> Str) { forkless_version() }

sub run(*@args where .so, :$in = '-', :$out = '-', :$err = '-', Bool :$bin, Bool :$chomp = True, Bool :$merge, Str :$enc,
        Str:D :$nl = "\n", :$cwd = $*CWD, :$env, :$arg0, :$sandbox = False, :$settings, :$win-verbatim-args) is export(:DEFAULT, :run) {
    my $proc := Forkless::Proc.new(:$in, :$out, :$err, :$bin, :$chomp, :$merge, :$enc, :$nl);
    $proc.spawn(@args, :$cwd, :$env, :$arg0, :$sandbox, :$settings);
    $proc
}

sub shell($cmd, :$in = '-', :$out = '-', :$err = '-', Bool :$bin, Bool :$chomp = True, Bool :$merge, Str :$enc,
        Str:D :$nl = "\n", :$cwd = $*CWD, :$env, :$sandbox = False, :$settings) is export(:DEFAULT, :shell) {
    my $proc := Forkless::Proc.new(:$in, :$out, :$err, :$bin, :$chomp, :$merge, :$enc, :$nl);
    $proc.shell($cmd, :$cwd, :$env, :$sandbox, :$settings);
    $proc
}

# Rakudo compiles qx and qqx to a call of this name, which is looked up where they are written.
sub QX($cmd, :$cwd = $*CWD, :$env) is export(:DEFAULT, :qx) {
    my $proc := Forkless::Proc.new(:out);
    $proc.shell($cmd, :$cwd, :$env);
    $proc.out.slurp(:close)
}

=begin pod

=head1 NAME

Forkless - start programs without fork

=head1 SYNOPSIS

    use Forkless;

    my $proc = run 'ls', '-l', :out;
    .say for $proc.out.lines;
    shell 'make 2>&1 | tail' or die;
    my $kernel = qx{uname -r};

=head1 DESCRIPTION

C<use Forkless> replaces C<run>, C<shell>, C<qx> and C<qqx> in its lexical scope. They have the parameters and results of Raku's
own. The time of a launch does not grow with the memory of the process. C<use Forkless :run> replaces only C<run>; the other tags are
C<:shell> and C<:qx>.

The result is a C<Forkless::Proc>, a subclass of C<Proc>. A program that cannot be started has exit code 1, or what a later Rakudo makes of
the errno; C<$proc.os-error> is the reason. If nothing uses the result, a failure throws C<X::Proc::Unsuccessful>. C<capture> of
L<Forkless::Capture> throws the reason, C<X::Forkless>, instead.

A line of C<shell> or C<qx> that is one simple command runs without F</bin/sh>, if nothing differs. Status, output and the shell's
messages are the same; C<pid> is that of the program.

C<Forkless::Proc::Async> is the asynchronous interface.

With C<:sandbox>, C<run> and C<shell> start a program that is not trusted: C<True>, the options of a C<Forkless::Sandbox>, or one that was
made for many launches. C<pid> is then that of the sandbox's init.

C<:settings> is a hash of settings of the child (F<docs/settings.md>). One with several values has a list, C«rlimit => ('nofile', 64, 64)»; a hash
or a list of lists is several calls, C«rlimit => { nofile => (64, 64), core => (0, 0) }». Mounts are made in the order of a list of pairs; a hash
has none.

=item Numbers, flags, texts: C<nice>, C<umask>, C<chroot>, C<user>, C<group>, C<uid>, C<gid>, C<setsid>, C<process-group>, C<kill-tree>,
C<no-new-privs>, C<hostname> and the others of the table in F<docs/settings.md>.
=item C<rlimit> (resource, soft, hard), C<scheduler> (policy, priority), C<io-priority> (class, level), C<launcher>: names are words.
=item C<groups>, C<cpu-affinity>: a list. C<signal-ignore>, C<signal-block>, C<signal-default>, C<best-effort>: a value or a list.
=item C<fd> (the child's number, a handle or descriptor).
=item C<unshare>, C<join> (namespace, handle), C<map-uid> and C<map-gid> (inside, outside, count), C<bind>, C<bind-read-only>, C<tmpfs>,
C<read-only>, C<proc>, C<devices>.

C<Forkless::library-version> returns the version of the C library. The environment variable C<FORKLESS_LIBRARY> is the path of that
library, if the dynamic linker does not find it.

=head1 LIMITATIONS

Linux only. The child inherits no descriptors but its standard streams.

=end pod
