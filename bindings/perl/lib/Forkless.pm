package Forkless;
use v5.16;
use warnings;
use Carp     ();
use Exporter ();
use Symbol   ();

our $VERSION = '0.1.0';

# What failed last: a Forkless::Error.
our $error;

our @ISA       = ('Exporter');
our @EXPORT_OK = qw(open2 open3 popen capture launch_all);

require XSLoader;
XSLoader::load('Forkless', $VERSION);

require Forkless::Error;
require Forkless::Command;
require Forkless::Child;
require Forkless::WaitSet;

my %BUILTIN = (system => 1, readpipe => 2, open => 4);

sub import {
    my ($class, @words) = @_;
    my @functions;
    for my $word (@words) {
        if ($BUILTIN{$word}) {
            # HINT_LOCALIZE_HH: until the end of the block or file that is being compiled.
            $^H |= 0x20000;
            $^H{"Forkless/$word"} = 1;
        }
        elsif ($word eq ':everywhere') {
            _everywhere($_) for values %BUILTIN;
        }
        else {
            push @functions, $word;
        }
    }
    $class->export_to_level(1, $class, @functions) if @functions;
    return;
}

sub unimport {
    my ($class, @words) = @_;
    delete $^H{"Forkless/$_"} for @words ? @words : keys %BUILTIN;
    return;
}

sub new {
    my ($class, @settings) = @_;
    return Forkless::Command->new(@settings);
}

sub capture {
    my ($words, %options) = @_;
    my $command = Forkless::Command->new(cmd => $words) or return;
    return $command->capture(%options);
}

sub launch_all {
    my (@prepared) = @_;
    return map { $_ && $_->_pass_on } _launch_all(@prepared);
}

# As perl's own open with these modes, without fork.
sub popen {
    my ($mode, @command) = @_;
    my $reads = { '-|' => 1, 'r' => 1, '|-' => 0, 'w' => 0 }->{ $mode // '' };
    Carp::croak('popen: the mode is -| or |-')             if !defined $reads;
    Carp::croak('popen: no command')                       if !@command;
    Carp::croak('popen: the command -, a fork, is open\'s') if @command == 1 && $command[0] eq '-';
    my ($handle, $pid) = do { no warnings 'exec'; _popen($reads, @command) };
    return if !defined $handle;
    return wantarray ? ($handle, $pid) : $handle;
}

# A handle that open3 was given, or makes in the caller's variable: one end of a pipe, of which this gives the other.
sub _plug {
    my ($me, $package, $place, $is_input) = @_;
    my $handle = $$place;
    if (!defined $handle || (!ref $handle && $handle eq '')) {
        $handle = Symbol::gensym();
        eval { $$place = $handle; 1 } or $place == \undef or Carp::croak("$me: Modification of a read-only value attempted");
    }
    my $ours = ref $handle ? $handle : Symbol::qualify_to_ref($handle, $package);
    my $theirs;
    my $done = $is_input ? pipe($theirs, $ours) : pipe($ours, $theirs);
    Carp::croak("$me: pipe failed: $!") if !$done;
    return { ours => $ours, theirs => $theirs, fd => fileno $theirs };
}

# "<&HANDLE", ">&3": what the program gets is a copy.
sub _copy {
    my ($me, $package, $name) = @_;
    return { fd => $1, number => $1 } if $name =~ /\A=?(\d+)\z/;
    my $handle = Symbol::qualify_to_ref($name, $package);
    my $fd     = fileno $handle;
    Carp::croak("$me: $name is not open, or has no descriptor") if !defined $fd || $fd < 0;
    return { fd => $fd, handle => $handle };
}

sub _end {
    my ($me, $package, $place, $is_input) = @_;
    return _copy($me, $package, $1) if defined $$place && !ref $$place && ref \$$place ne 'GLOB' && $$place =~ /\A[<>]&(.*)\z/s;
    return _plug($me, $package, $place, $is_input);
}

sub _give_away {
    my ($copy) = @_;
    if (defined $copy->{number}) {
        open my $handle, '<&=', $copy->{number} or return;
        return close $handle;
    }
    return close $copy->{handle};
}

# $places: references to what the caller has for input, output and errors; no reference for errors: they stay where ours go.
sub _open {
    my ($me, $places, @command) = @_;
    my $package = caller 1;
    Carp::croak("$me: the command -, a fork, is IPC::Open3's") if @command == 1 && $command[0] eq '-';
    my ($in, $out, $err) = @$places;
    my $is_same = $err && (!$$err || defined $$out && $$err eq $$out);
    my $input   = _end($me, $package, $in,  1);
    my $output  = _end($me, $package, $out, 0);
    my $errors  = $err && !$is_same ? _end($me, $package, $err, 0) : undef;
    my $fd      = $is_same ? -2 : $errors ? $errors->{fd} : -1;
    my $pid     = do { no warnings 'exec'; _start($input->{fd}, $output->{fd}, $fd, @command) };
    if (!defined $pid) {
        my $errno = $! + 0;
        close $_->{ours} for grep { $_ && $_->{ours} } $input, $output, $errors;
        local $" = ' ';
        $! = $errno;
        Carp::croak("$me: exec of @command failed: $!");
    }
    if (!$input->{ours}) {
        _give_away($input);
    }
    else {
        my $old = select $input->{ours};
        $| = 1;
        select $old;
    }
    return $pid;
}

sub open3 {
    Carp::croak('open3: not enough arguments') if @_ < 4;
    return _open('open3', [\$_[0], \$_[1], \$_[2]], @_[3 .. $#_]);
}

sub open2 {
    Carp::croak('open2: not enough arguments') if @_ < 3;
    return _open('open2', [\$_[1], \$_[0]], @_[2 .. $#_]);
}

1;

__END__

=encoding UTF-8

=head1 NAME

Forkless - start programs at the speed of exec, however big perl has become

=head1 SYNOPSIS

    # perl's own words, without fork.
    use Forkless qw(system readpipe open);
    system('make', '-s', 'all') == 0 or die "make: $?";
    my $kernel = `uname -r`;
    open my $list, '-|', 'ls', '-l' or die "ls: $!";

    # Proc::FastSpawn's functions.
    use Forkless::FastSpawn;
    my $pid = spawnp 'ls', ['ls', '-l'];
    waitpid $pid, 0;

    # Everything that a child can be told.
    my $child = Forkless->new(
        cmd    => ['sort', '-u', 'words'],
        cwd    => '/usr/share/dict',
        env    => { LC_ALL => 'C', DEBUG => undef },
        stdout => 'pipe',
        rlimit => ['AS', 1 << 30, 1 << 30],
    )->spawn or die "$Forkless::error\n";
    my @sorted = readline $child->stdout;
    defined $child->wait(10) or $child->terminate;

=head1 DESCRIPTION

C<fork> copies the page tables of perl: a perl of 1 GiB pays tens of milliseconds for each C<system>, and the same again in pages to
be copied when it goes on. forkless starts programs without: the child has no memory of its own until it executes, and only a list of
system calls to do before. What a child may be told, in what order it is done, and what is promised, is in forkless' own documentation
(F<docs/> of its sources); this is a library of it for perl.

Nothing here is called in the child: no C<END>, no destructor, no C<CLONE>.

=head1 PERL'S OWN FUNCTIONS

    use Forkless qw(system readpipe open);

From here to the end of the block or file, C<system> in all of its forms (a string, a list, C<system { $program } @words>), C<qx//>,
backticks and C<readpipe>, and C<open> of pipes (C<-|>, C<|->, S<C<"program |">>, S<C<"| program">>) do not fork. C<no Forkless> ends that. Other
packages and files are not touched, and a C<system> of your own, or C<CORE::GLOBAL::system>, is called as before: the compiler puts
another function into perl's ops, so there is no other syntax. C<exec> and C<fork> are perl's, and so is C<open> of all else, and of the command
C<->, which asks for a fork.

    perl -MForkless=:everywhere program.pl

does it for all that is compiled from then on, modules too.

What they do is what L<perlfunc> says: C<$?>, C<$!>, C<${^CHILD_STATUS_NATIVE}>, warnings of the category C<exec>, taint checks, layers of
L<open>, C<$/>; buffered output is written first; SIGINT and SIGQUIT are ignored and SIGCHLD is blocked while C<system> waits. Which
string is for C</bin/sh -c>, perl's own rules say. A test runs 130 cases by both and compares.

What is different:

=over

=item *

A NUL in a command is an error (C<$?> is -1 and C<$!> is EINVAL, with a warning of the category C<syscalls>). Perl cuts the argument off there.

=item *

A handler of a signal that dies leaves signals as they were before C<system>. With perl's own, SIGINT and SIGQUIT stay ignored then, and
SIGCHLD blocked.

=item *

C<Can't exec> is told by your process and not by a child's copy of it, so a handler in C<$SIG{__WARN__}> hears of it, also for C<qx//>.

=item *

C<qx(-)> is a program of that name. Perl's own forks there, as C<open> with C<|-> does.

=item *

With C<-T> C<open> is perl's own, and forks; from perl 5.38 on all three are.

=back

=head1 FUNCTIONS

These are exported on request.

=head2 popen

    my $handle = Forkless::popen('-|', 'ls', '-l') or die "$!";
    my ($input, $pid) = Forkless::popen('|-', 'cat >/dev/null');

The same as a function. As C<open> with these modes: one string is a line, several are a program and its arguments. C<close> waits, and tells in C<$?>.

=head2 open2, open3

    use Forkless qw(open2 open3);
    my $pid = open3(my $in, my $out, my $err, 'program', 'argument');

As those of L<IPC::Open2> and L<IPC::Open3>: handles, names, C<< <&HANDLE >> and C<< >&3 >>, with the same exceptions. The command C<->, a fork, is theirs.

=head2 capture

    my $output = Forkless::capture(['tr', 'a-z', 'A-Z'], input => 'hello', timeout => 10);
    print $output->stdout if $output && $output->status == 0;

A command run to its end: see L</capture> of commands.

=head2 launch_all

    my @children = Forkless::launch_all(@prepared);

Many at once, on several processors; undef in place of one that could not be.

=head2 reap_orphans, settings, step_words, library_version

C<Forkless::reap_orphans()> reaps children whose objects were dropped before they ended, and says how many still run; a later launch does
it too. C<Forkless::settings()> lists the names of all settings, C<Forkless::step_words($step)> says a step in words.

=head1 FORKLESS::FASTSPAWN

    use Forkless::FastSpawn;    # in place of: use Proc::FastSpawn;

exports C<spawn>, C<spawnp> and C<fd_inherit> with the prototypes and meanings of L<Proc::FastSpawn>:

    my $pid = spawn '/bin/echo', ['echo', 'hello, world'];
    $pid = spawnp 'sh', ['sh', '-c', 'echo $A'], ['PATH=/bin', 'A=1'];
    fd_inherit fileno STDERR, 0;

The pid is for C<waitpid>. As with the original, C<spawnp> searches the PATH of the new environment if one is given, gives a file
without C<#!> to a shell, and arguments are bytes: wide characters are an exception. In addition the environment may be a hash; a program
that cannot be executed is undef with C<$!>, never a child that ends with 127; C<spawnp> does not fork; and a NUL is EINVAL. The
environment is handed on in the order of its names, and of a name that is there twice the first counts.

For programs and modules that say C<use Proc::FastSpawn>, a module of that name is in F<shim>; C<FORKLESS_FASTSPAWN_SHIM=1 perl Makefile.PL>
installs it.

=head1 COMMANDS

    my $command = Forkless->new(cmd => [$program, @arguments], cwd => "/usr");

What the program is to find. Unless told otherwise it has your environment, directory and standard streams; of your other descriptors
none, be they close-on-exec or not; SIGPIPE and SIGFPE at their defaults and no signal blocked. Values are in pairs:

=over

=item cmd

The program, a path if it has a slash in it and else searched for in PATH, and its arguments. No shell looks at them.

=item cwd

The directory: a path or a handle.

=item env, environment

A hash of variables to set, or with undef to remove; a hash of all.

=item stdin, stdout, stderr

=item fds

What the program finds at 0, 1, 2; a hash by numbers.

    stdin  => 'null',                    # /dev/null
    stdout => ['>>', 'log'],             # a file, opened in the child; <, >, +<, +> too; nothing in procfs
    stderr => 'stdout',                  # where its own standard output goes
    fds    => { 5 => $handle, 6 => 'socketpair' },

Or C<'pipe'>, at 0, 1 and 2; C<'inherit'>; the number of a descriptor. A tied handle, or one in memory, has none, and is an exception. One
at which a handle points must be open when the command is run.

=item raise

True: what fails is an exception, a Forkless::Error. Otherwise it is undef, with C<$!>, and the error in C<$Forkless::error>.

=item every setting of the library

By its name in F<forkless.h>, without C<forkless_command_>, with what the function takes: C<< umask => 077 >>, C<< setsid => 1 >>,
C<< rlimit => ['NOFILE', 64, 64] >>, and a list of lists for several times: C<< rlimit => [['CPU', 1, 2], ['CORE', 0, 0]] >>. Handles are taken for
descriptors, names for signals, and words for limits (C<NOFILE>), namespaces (C<user>), launchers (C<fork>), policies (C<batch>) and
classes (C<idle>). L<docs/settings.md> of the sources says what each does.

=back

Each setting is a method too, which gives the command: C<< $command->umask(077)->nice(5) >>. C<< $command->stream(1, 'null') >> and
C<< $command->cwd('/') >> are those above. C<< $command->call($number, $variable, @arguments) >> has the child do a system call by its number;
references are bytes, references to references variables of earlier calls.

=head2 spawn, launch

    my $child = $command->spawn;

A L<child|/CHILDREN>, when the program has been executed. C<launch> returns as soon as there is a child; whether it could be executed tells C<wait>, or
C<wait_exec>.

=head2 status

    $command->status == 0 or die;

Runs it to its end: the status, as C<$?>, which is set too.

=head2 capture

    my $output = $command->capture(input => $text, timeout => 10, limit => 1 << 20);

Runs it to its end with the input, and takes both streams. Options: C<input>, bytes; C<limit>, of bytes kept of each stream, and C<kill_at_limit>;
C<timeout>, in seconds, after which it is sent C<signal>, and SIGKILL after C<grace> seconds; C<merged>: errors go where output does; C<linger>: how long to
read on when it has ended and others have its streams open. The object has C<stdout>, C<stderr>, C<status>, C<timed_out>, C<held_open>, C<stdout_cut>,
C<stderr_cut>, C<input_left>, C<usage>. Handlers of signals run when it is over: use C<timeout> rather than C<alarm>.

=head2 prepare

    my $prepared = $command->prepare;
    $prepared->spawn for 1 .. 100;

The work that all runs share, done once, with the environment of now. It has C<spawn>, C<launch>, C<status>, C<capture>, and C<steps>: what the child will do,
a line for each.

=head1 CHILDREN

    my $child = $command->spawn;

Dropping the object neither kills the child nor leaves a zombie, unless C<kill_on_free> says so. Handlers of signals run while these wait,
and may die.

=over

=item pid, status, usage, route, missed

Numbers; the status, when it has been waited for; a hash of what it used; how it was launched; which best-effort steps failed.

=item stdin, stdout, stderr, socket

The other ends of its pipes; C<< $child->socket(6) >> that of a pair.

=item wait

    defined $child->wait(2.5) or die "not ended: $!";

The status as C<$?>, which is set; undef and ETIMEDOUT when the seconds are over. Without a time it closes the program's input first.
C<wait_change> also tells when it is stopped or goes on, as waitpid(2) does; C<wait_exec> when the program has been executed.

=item signal, signal_group, kill, terminate, terminate_group, kill_on_free

C<< $child->signal('HUP') >>, to the child or to the process group that it leads; C<kill>, SIGKILL if nothing is said. C<< $child->terminate('TERM', 5) >>: the signal, and SIGKILL
if it is there 5 seconds later; waits. C<< $child->kill_on_free(1) >>: it does not outlive the object.

=item pidfd

A handle, readable when the program has ended: for loops of events.

    my $watch = AnyEvent->io(fh => $child->pidfd, poll => 'r', cb => sub { $child->wait(0) });
    $loop->watch_io(handle => $child->pidfd, on_read_ready => sub { $child->wait(0) });
    Mojo::IOLoop->singleton->reactor->io($child->pidfd => sub { $child->wait(0) });

(with AnyEvent, IO::Async and Mojolicious: F<eg/anyevent.pl> is a whole program). No handler of SIGCHLD is needed.

=item handed_back

A handle of what the child has handed back (C<hand_back>).

=item release

Gives the child up: its pid, for C<waitpid>.

=back

=head1 WAIT SETS

    my $set = Forkless::WaitSet->new;
    $set->insert($_->spawn, $_) for @commands;
    while (my ($child, $command) = $set->wait) {
        print $child->pid, ' has ended: ', $child->status, "\n";
    }

The next of many to end, at the same cost for each. C<insert> gives a key, for C<signal> and C<remove>; C<wait> takes seconds; C<count> tells how many there are; C<handle>
is readable when one has ended. A child is the set's until it comes back.

=head1 ERRORS

    if (!$command->spawn) {
        print "$Forkless::error\n";    # failed to start "gitt": exec: No such file or directory (searched PATH: ...)
        print $Forkless::error->errno, ' ', $Forkless::error->step_words, "\n";
    }

A Forkless::Error has C<errno>, C<step>, C<step_words> and C<message>, which it is as a string. Wrong names, words and types are exceptions
in any case.

=head1 TEXTS

Perl's own functions, commands and settings pass what perl's C<exec> would: the bytes of a string of bytes, UTF-8 of one with wide characters (and of one
that perl keeps as UTF-8). Encode what you mean. Input and output of C<capture> are bytes. NULs are refused.

=head1 THREADS AND COPIES

Objects belong to the thread that made them; in others they are an exception that says so. Functions and perl's own may be used in all threads. A
forked copy of perl may launch; children of the original are not its own, and its copies of objects do no harm to them.

=head1 SPEED

    perl -Mblib ../../bench/engines/perl/compare.pl PROGRAM

launches in turn, in one process, and prints medians. With a static program that only exits (F<crates/cli/c/target.c> of the sources), in microseconds
from before the call until the program has been waited for, on 2 cores that others kept busy (perl 5.36, Proc::FastSpawn 1.2, Linux 6.18):

                                       small perl  200 MiB more  1 GiB more
    spawn, waitpid   Proc::FastSpawn         46.3          46.7        46.4
                     Forkless                48.9          49.1        49.0
    spawnp, waitpid  Proc::FastSpawn          272        21,234     154,412
                     Forkless                54.9          54.5        54.2
    system, a list   perl                     301        25,623     188,501
                     Forkless                54.5          54.5        53.9
    qx               perl                     318        24,069     165,509
                     Forkless                60.4          60.0        60.0
    Forkless->new(...)->status               66.2          65.6        65.7

C<spawn> of the original is a vfork(2); Forkless' takes 5 to 6 percent longer, since it waits for the exec by a system call of its own, and 10
where each launch differs from the one before. The others are from turns without a fork among them. In turns with one they take up to three
times as long, since each page that is written to after a fork is copied. A line for a shell costs the shell, in both.

=head1 INSTALLATION

    FORKLESS_PREFIX=/usr/local perl Makefile.PL && make && make test && make install

takes F<lib/libforkless.a> and F<include/forkless.h> of that prefix, else of C<pkg-config>, else builds them, where this directory is part of the sources of
forkless, with cargo. Linux on x86-64 or aarch64, perl 5.26 or later (tried with 5.36) with its headers, a C compiler.

=head1 SEE ALSO

L<Proc::FastSpawn>, L<IPC::Open3>, L<IPC::Run>

=head1 LICENSE

MIT or Apache-2.0, as you like.

=cut
