package Forkless;
use v5.16;

# No "use warnings": loading it takes as long as this whole file, and perl's own functions should start about as fast as before. The
# functions load the other modules when they need them.

our $VERSION = '0.1.0';

# The last error: a Forkless::Error.
our $error;

our @EXPORT_OK = qw(open2 open3 popen capture launch_all);

require XSLoader;
XSLoader::load('Forkless', $VERSION);

my %BUILTIN = (system => 1, readpipe => 2, open => 4);

sub import {
    my ($class, @words) = @_;
    my @functions;
    for my $word (@words) {
        if ($BUILTIN{$word}) {
            # HINT_LOCALIZE_HH: valid until the end of the block or file that is being compiled.
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
    return if !@functions;
    require Forkless::Command if grep { /capture|launch_all/ } @functions;
    my $package = caller;
    for my $name (@functions) {
        _croak(qq{"$name" is not exported by the Forkless module}) if !grep { $_ eq $name } @EXPORT_OK;
        no strict 'refs';
        *{"${package}::$name"} = \&$name;
    }
    return;
}

sub unimport {
    my ($class, @words) = @_;
    $^H |= 0x20000;
    $^H{"Forkless/$_"} = 0 for @words ? @words : keys %BUILTIN;
    return;
}

sub new {
    my ($class, @settings) = @_;
    require Forkless::Command;
    return Forkless::Command->new(@settings);
}

sub capture {
    my ($words, %options) = @_;
    require Forkless::Command;
    my $command = Forkless::Command->new(cmd => $words) or return;
    return $command->capture(%options);
}

sub launch_all {
    my (@prepared) = @_;
    my @children = _launch_all(@prepared);
    return map { $children[$_] && $children[$_]->_pass_on($prepared[$_]{raise}) } 0 .. $#prepared;
}

sub popen { require Forkless::Pipe; goto &Forkless::Pipe::popen }
sub open2 { require Forkless::Pipe; goto &Forkless::Pipe::open2 }
sub open3 { require Forkless::Pipe; goto &Forkless::Pipe::open3 }

1;

__END__

=encoding UTF-8

=head1 NAME

Forkless - start programs without fork: the time does not grow with perl's memory

=head1 SYNOPSIS

    # perl's own functions, without fork.
    use Forkless qw(system readpipe open);
    system('make', '-s', 'all') == 0 or die "make: $?";
    my $kernel = `uname -r`;
    open my $list, '-|', 'ls', '-l' or die "ls: $!";

    # Proc::FastSpawn's functions.
    use Forkless::FastSpawn;
    my $pid = spawnp 'ls', ['ls', '-l'];
    waitpid $pid, 0;

    # Commands with settings.
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

C<fork> copies the page tables of perl. With 1 GiB of memory, each C<system> takes 21 milliseconds, and perl then copies
each page that it writes to. This module starts programs without C<fork>. Until it executes the program, the child shares perl's memory and only
makes a prepared list of system calls.

This is the Perl interface of forkless. Its documentation (F<docs/> of the sources) describes all settings, their order, and what is
guaranteed.

No Perl code runs in the child: no C<END> block, no destructor, no C<CLONE>.

=head1 PERL'S OWN FUNCTIONS

    use Forkless qw(system readpipe open);

From here to the end of the enclosing block or file, these do not fork:

=over

=item *

C<system> in all forms: a string, a list, C<system { $program } @arguments>.

=item *

C<qx//>, backticks and C<readpipe>.

=item *

C<open> of pipes: C<-|>, C<|->, S<C<"program |">>, S<C<"| program">>.

=back

C<no Forkless> turns this off. Other packages and files are not affected. A C<system> that a package defines or imports, and
C<CORE::GLOBAL::system>, are called as before. The syntax is perl's: the module replaces the functions of compiled ops. C<exec> and C<fork> are not
changed, nor is C<open> of anything else, nor of the command C<->, which asks for a fork.

    perl -MForkless=:everywhere program.pl

does the same for all code that is compiled later, including modules, but not after C<no Forkless>.

The functions behave as L<perlfunc> describes: C<$?>, C<$!>, C<${^CHILD_STATUS_NATIVE}>, warnings, taint checks, layers of L<open>, C<$/>. Buffered
output is written first. While C<system> waits, SIGINT and SIGQUIT are ignored and SIGCHLD is blocked. Perl's rules decide whether a string
needs C</bin/sh -c>. The tests run about 200 cases with perl's functions and with these, and compare the results.

Differences from perl's functions:

=over

=item *

A NUL in a command is an error: C<$?> is -1 and C<$!> is EINVAL, with a warning of the category C<syscalls>. Perl truncates the argument.

=item *

If a signal handler dies during C<system>, the dispositions and the signal mask are restored. Perl leaves SIGINT and SIGQUIT ignored, and
SIGCHLD blocked.

=item *

The warning C<Can't exec> is issued in your process and not in a forked child. So C<$SIG{__WARN__}> is called, also for C<qx//>.

=item *

C<qx(-)> runs a program named C<->. Perl forks, as C<open> with C<|-> does.

=item *

C<open> of a pipe with an unknown layer does not start the program. Perl starts it, and leaves its end of the pipe open.

=item *

C<open> fetches the value of a tied argument in your process. Perl fetches it in the child.

=item *

With C<-T>, C<open> is perl's own and forks, as are C<popen>, C<open2> and C<open3>. From perl 5.38 on, this is true of C<system> and C<qx> too.
Commands (C<new>, C<capture>) and L<Forkless::FastSpawn> do not check for tainted arguments; the output of C<capture> is tainted.

=back

=head1 FUNCTIONS

=head2 new

    my $command = Forkless->new(cmd => [$program, @arguments], cwd => '/usr');

Creates a command; see L<Forkless::Command> for the settings. Its C<spawn> returns a L<Forkless::Child>.

=head2 popen, open2, open3

    my $handle = Forkless::popen('-|', 'ls', '-l') or die "$!";

Open pipes to and from programs: see L<Forkless::Pipe>. Exported on request.

=head2 capture

    my $output = Forkless::capture(['tr', 'a-z', 'A-Z'], input => 'hello', timeout => 10);
    print $output->stdout if $output && $output->status == 0;

Runs a command, waits for its end and returns its output: see L<Forkless::Command/capture> for the options. It takes no settings; for these use
C<< Forkless->new(cmd => [...], %settings)->capture(%options) >>. Exported on request.

=head2 launch_all

    my @children = Forkless::launch_all(@prepared);

Starts many prepared commands, using several CPUs. The list has undef for each command that could not be started. Exported on request.

=head2 reap_orphans

Reaps children that ended after their objects were destroyed, and returns how many are still running. Every launch does this too.

=head2 settings, step_words, library_version

C<settings> returns the names of all settings, C<step_words> the name of a step, given its number, and C<library_version> the version of
libforkless.

=head1 MODULES

=over

=item L<Forkless::Command>

A command: settings, redirections, C<spawn>, C<capture>.

=item L<Forkless::Child>

A child: its streams, waiting for it, signals.

=item L<Forkless::WaitSet>

Waits for many children. Load it with C<use Forkless::WaitSet>.

=item L<Forkless::Warm>

Launches short programs from a template, without exec (experimental). Load it with C<use Forkless::Warm>.

=item L<Forkless::Cgroup>

Limits of all processes of a program together. Load it with C<use Forkless::Cgroup>.

=item L<Forkless::Sandbox>

What a program may do that is not trusted. Load it with C<use Forkless::Sandbox>.

=item L<Forkless::Pipeline>

Programs, each of which reads what the one before it writes. Load it with C<use Forkless::Pipeline>.

=item L<Forkless::Pty>

A pseudo-terminal for a program. Load it with C<use Forkless::Pty>.

=item L<Forkless::Pipe>

C<popen>, C<open2>, C<open3>.

=item L<Forkless::FastSpawn>

The functions of L<Proc::FastSpawn>. Load it with C<use Forkless::FastSpawn>.

=item L<Forkless::Error>

Errors.

=back

C<use Forkless> alone loads none of them, which saves a few milliseconds. The others are loaded when they are first used. A program that calls
C<chroot>, or C<chdir> with relative paths in C<@INC>, must load L<Forkless::Command> or L<Forkless::Pipe> before that.

=head1 STRING ENCODING

Arguments and settings are passed as perl's C<exec> passes them: a byte string as its bytes, a string with wide characters as UTF-8. A string
that perl stores as UTF-8 internally is passed as UTF-8 too. To be sure, encode strings to bytes. Input and output of C<capture> are bytes,
and so are messages. NULs are refused.

=head1 THREADS AND FORK

An object belongs to the thread that created it; using it in another thread throws an exception. Functions, including perl's own, may be used
in all threads. A forked process may start programs. The children of its parent are not its children, and destroying its copies of objects does not
affect them.

=head1 SPEED

    perl -Mblib ../../bench/engines/perl/compare.pl PROGRAM

alternates the methods in one process and prints medians. The times below are in microseconds, from before the call until the program has been
waited for. The program is static and only exits (F<bench/c/target.c> of the sources). The machine had 2 CPUs, perl 5.36.0,
Proc::FastSpawn 1.2 and Linux 6.18 (F<bench/record/2026-11-22-libraries/perl.txt> of the sources):

                                       small perl  200 MiB more  1 GiB more
    spawn, waitpid   Proc::FastSpawn         45.9          46.1        46.6
                     Forkless                48.4          48.5        49.2
    spawnp, waitpid  Proc::FastSpawn        505.1       4,481.3    20,985.0
                     Forkless               133.3         148.8       139.5
    system, a list   perl                   504.1       4,435.1    21,307.1
                     Forkless               128.9         142.0        71.1
    system, a line   perl                 1,161.6       5,129.5    22,512.2
    for a shell      Forkless               859.6       1,138.6     1,115.4
    qx               perl                   519.8       4,439.6    21,118.3
                     Forkless               130.9         145.7        83.6
    Forkless->new(...)->status              136.4         136.3       134.7

Compare the two lines of a pair, not different pairs. On this virtual machine a child that starts on the other, idle CPU takes 70
microseconds longer than on its parent's CPU, and which of the two happens can last for many launches.

C<spawn> of Proc::FastSpawn calls vfork(2). C<spawn> of Forkless takes 5 to 6 percent longer, because it waits for the exec with a system call of its
own. A command line that needs a shell also costs the start of the shell, with both.

=head1 INSTALLATION

    FORKLESS_PREFIX=/usr/local perl Makefile.PL && make && make test && make install

This uses F<lib/libforkless.a> and F<include/forkless.h> of the prefix. Without FORKLESS_PREFIX it asks C<pkg-config>. If that finds nothing, and this
directory is part of the forkless sources, it builds the library with cargo.

Requires Linux on x86-64 or aarch64, perl 5.26 or later (tested with 5.36) with its headers, and a C compiler.

=head1 SEE ALSO

L<Forkless::Command>, L<Forkless::Child>, L<Proc::FastSpawn>, L<IPC::Open3>, L<IPC::Run>

=head1 AUTHOR

The forkless maintainers.

=head1 LICENSE

MIT or Apache-2.0, at your option.

=cut
