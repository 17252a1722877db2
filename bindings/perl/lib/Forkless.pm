package Forkless;
use v5.16;

# No "use warnings", which takes as long as all of this file: perl's own functions are to cost little more than they did. The other
# modules are loaded by the functions that need them.

our $VERSION = '0.1.0';

# What failed last: a Forkless::Error.
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
    delete $^H{"Forkless/$_"} for @words ? @words : keys %BUILTIN;
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
    return map { $_ && $_->_pass_on } _launch_all(@prepared);
}

sub popen { require Forkless::Pipe; goto &Forkless::Pipe::popen }
sub open2 { require Forkless::Pipe; goto &Forkless::Pipe::open2 }
sub open3 { require Forkless::Pipe; goto &Forkless::Pipe::open3 }

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

C<fork> copies the page tables of perl. A perl of 1 GiB pays tens of milliseconds for each C<system>, and the same again in pages that
are copied when it goes on. forkless starts programs without: until it executes the program the child has no memory of its own, and makes only the
system calls of a list. What a child can be told, in what order it is done, and what is promised, is in the documentation of forkless
(F<docs/> of its sources). This is its library for perl.

Nothing of perl runs in the child: no C<END>, no destructor, no C<CLONE>.

=head1 PERL'S OWN FUNCTIONS

    use Forkless qw(system readpipe open);

From here to the end of the block or file these do not fork:

=over

=item *

C<system> in all of its forms: a string, a list, C<system { $program } @words>.

=item *

C<qx//>, backticks and C<readpipe>.

=item *

C<open> of pipes: C<-|>, C<|->, S<C<"program |">>, S<C<"| program">>.

=back

C<no Forkless> ends that. Other packages and files are not affected, and a C<system> of your own, or C<CORE::GLOBAL::system>, is called as before. The
compiler puts other functions into perl's ops, so there is no other syntax. C<exec> and C<fork> are perl's own. So is C<open> of everything
else, and of the command C<->, which asks for a fork.

    perl -MForkless=:everywhere program.pl

does the same for all code that is compiled from then on, modules too.

They do what L<perlfunc> says: C<$?>, C<$!>, C<${^CHILD_STATUS_NATIVE}>, warnings, taint checks, layers of L<open>, C<$/>. Buffered output is
written first. While C<system> waits, SIGINT and SIGQUIT are ignored and SIGCHLD is blocked. Perl's own rules decide which string is for
C</bin/sh -c>. Tests run some 200 cases by both and compare.

What is different:

=over

=item *

A NUL in a command is an error (C<$?> is -1 and C<$!> is EINVAL, with a warning of the category C<syscalls>). Perl cuts the argument off there.

=item *

A signal handler that dies leaves signals as they were before C<system>. With perl's own, SIGINT and SIGQUIT stay ignored then, and
SIGCHLD blocked.

=item *

Your process warns C<Can't exec>, and not a child's copy of it. A handler in C<$SIG{__WARN__}> is called, also for C<qx//>.

=item *

C<qx(-)> is a program of that name. Perl's own forks there, as C<open> with C<|-> does.

=item *

C<open> of a pipe with an unknown layer does not start the program. Perl's own starts it, and leaves its end of the pipe open.

=item *

C<open> asks a tied argument of the command for its value in your process. Perl's own asks in the child.

=item *

With C<-T> C<open> is perl's own, and forks; from perl 5.38 on all three are.

=back

=head1 FUNCTIONS

=head2 new

    my $command = Forkless->new(cmd => [$program, @arguments], cwd => '/usr');

Makes a command, with every setting of libforkless: L<Forkless::Command>. Its C<spawn> returns a child: L<Forkless::Child>.

=head2 popen, open2, open3

    my $handle = Forkless::popen('-|', 'ls', '-l') or die "$!";

Pipes to and from programs, exported on request: L<Forkless::Pipe>.

=head2 capture

    my $output = Forkless::capture(['tr', 'a-z', 'A-Z'], input => 'hello', timeout => 10);
    print $output->stdout if $output && $output->status == 0;

Runs a command to its end and returns its output: L<Forkless::Command/capture>. Exported on request.

=head2 launch_all

    my @children = Forkless::launch_all(@prepared);

Starts many prepared commands at once, on several CPUs. undef stands for one that could not be started. Exported on request.

=head2 reap_orphans

Reaps children whose objects were dropped before they ended, and returns how many still run. A later launch does the same.

=head2 settings, step_words, library_version

The names of all settings; the name of a step, by its number; the version of libforkless.

=head1 MODULES

=over

=item L<Forkless::Command>

Commands: settings, streams, C<spawn>, C<capture>.

=item L<Forkless::Child>

Children: their streams, their end, signals.

=item L<Forkless::WaitSet>

The next of many children to end. To be loaded by C<use Forkless::WaitSet>.

=item L<Forkless::Pipe>

C<popen>, C<open2>, C<open3>.

=item L<Forkless::FastSpawn>

The functions of L<Proc::FastSpawn>. To be loaded by C<use Forkless::FastSpawn>.

=item L<Forkless::Error>

Errors.

=back

C<use Forkless> alone loads none of them: that costs a few milliseconds less. The others are loaded when they are first used. A program that changes its
root, or its working directory with relative paths in C<@INC>, loads L<Forkless::Command> or L<Forkless::Pipe> before.

=head1 TEXTS

Perl's own functions, commands and settings pass what perl's C<exec> would: the bytes of a string of bytes, UTF-8 of one with wide characters (and of one
that perl keeps as UTF-8). Encode what you mean. Input and output of C<capture> are bytes. NULs are refused.

=head1 THREADS AND COPIES

Objects belong to the thread that made them; in others they are an exception that says so. Functions and perl's own may be used in all threads. A
forked copy of perl may launch; children of the original are not its own, and its copies of objects do no harm to them.

=head1 SPEED

    perl -Mblib ../../crates/bench/engines/perl/compare.pl PROGRAM

launches in turn, in one process, and prints medians. With a static program that only exits (F<crates/bench/c/target.c> of the sources), in microseconds
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

L<Forkless::Command>, L<Forkless::Child>, L<Proc::FastSpawn>, L<IPC::Open3>, L<IPC::Run>

=head1 AUTHOR

The forkless maintainers.

=head1 LICENSE

MIT or Apache-2.0, at your option.

=cut
