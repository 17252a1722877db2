package Forkless::Command;
use v5.16;
use warnings;
use Forkless ();
use Forkless::Child;
use Forkless::Error;

our $VERSION = '0.1.0';

my %STREAM = (stdin => 0, stdout => 1, stderr => 2);
# Names for the numbers that these settings take as first argument.
my %NAMESPACE = (
    time => 0x80, mount => 0x20000, cgroup => 0x2000000, uts => 0x4000000, ipc => 0x8000000, user => 0x10000000,
    pid => 0x20000000, network => 0x40000000,
);
my $n        = 0;
my %RESOURCE = map { $_ => $n++ }
    qw(CPU FSIZE DATA STACK CORE RSS NPROC NOFILE MEMLOCK AS LOCKS SIGPENDING MSGQUEUE NICE RTPRIO RTTIME);
my %WORDS = (
    unshare     => \%NAMESPACE,
    join        => \%NAMESPACE,
    rlimit      => \%RESOURCE,
    launcher    => { clone => 0, fork => 1, posix_spawn => 2 },
    scheduler   => { other => 0, fifo => 1, rr => 2, batch => 3, idle => 5 },
    io_priority => { realtime => 1, best_effort => 2, idle => 3 },
);

my $NUMBER  = qr/\A[-+]?(?:\d+\.?\d*(?:e[-+]?\d+)?|\.\d+|inf(?:inity)?)\z/i;
my %CAPTURE = map { $_ => 1 } qw(input limit timeout signal grace linger merged kill_at_limit);

sub new {
    my ($class, @settings) = @_;
    Forkless::_croak('settings are pairs of a name and a value') if @settings % 2;
    my %given   = @settings;
    my $raise   = $given{raise};
    my $command = $given{cmd};
    my @words   = ref $command eq 'ARRAY' ? @$command : defined $command ? $command : ();
    Forkless::_croak('cmd: expected a reference to an array of a program and its arguments') if !@words;
    my $self = $class->_new($words[0]) or return Forkless::Error::give({ raise => $raise });
    $self->{raise} = $raise;
    $self->set(args => [@words[1 .. $#words]]) or return;
    # perl ignores SIGFPE, and programs do not expect to inherit that.
    $self->set(signal_default => 'FPE') or return;
    while (my ($name, $value) = splice @settings, 0, 2) {
        next if $name eq 'cmd' || $name eq 'raise';
        $self->_setting($name, $value) or return;
    }
    return $self;
}

# Apply one setting of new.
sub _setting {
    my ($self, $name, $value) = @_;
    return $self->stream($STREAM{$name}, $value) if exists $STREAM{$name};
    return $self->cwd($value)                    if $name eq 'cwd';
    return $self->_each($value, sub { $self->stream(@_) })      if $name eq 'fds';
    return $self->_each($value, sub { $self->variable(@_) })    if $name eq 'env' && ref $value eq 'HASH';
    return $self->environment($value)                           if $name eq 'environment';
    return $self->warm($value)                                  if $name eq 'warm';
    return $self->sandbox($value)                               if $name eq 'sandbox';
    return $self->pty($value)                                   if $name eq 'pty';
    return $self->cgroup($value)                                if $name eq 'cgroup' && ref $value ne 'ARRAY';
    my $kinds = Forkless::Command::_kinds($name)
        // Forkless::_croak("no such setting: $name" . ($CAPTURE{$name} ? '; it is an option of capture' : ''));
    return $self->set($name, $value) if ref $value ne 'ARRAY' || $kinds =~ /\A[LNB]\z/;
    # [[a, b], [c, d]]: two calls. [a, b]: one call, or two if the setting takes one argument.
    my @calls = ref $value->[0] eq 'ARRAY' && $kinds !~ /\AL/ ? @$value : length $kinds == 1 ? map { [$_] } @$value : $value;
    for my $call (@calls) {
        $self->set($name, @$call) or return;
    }
    return $self;
}

sub _each {
    my ($self, $hash, $call) = @_;
    Forkless::_croak('expected a reference to a hash') if ref $hash ne 'HASH';
    for my $key (sort keys %$hash) {
        $call->($key, $hash->{$key}) or return;
    }
    return $self;
}

sub set {
    my ($self, $name, @values) = @_;
    if (@values && !ref $values[0] && $WORDS{$name}) {
        my $words = $WORDS{$name};
        $values[0] = $words->{ $values[0] } // Forkless::_croak("$name: no such name: $values[0]") if $values[0] !~ /\A\d+\z/;
    }
    # The library has the number of a descriptor. If the handle were closed, that could be another file at the launch.
    my @handles = grep { ref && ref ne 'ARRAY' } @values;
    $self->{handles}{ join ' ', $name, grep { !ref } @values } = \@handles if @handles;
    return Forkless::Command::_set($self, $name, @values) ? $self : Forkless::Error::give($self);
}

for my $name (grep { $_ ne 'cgroup' } Forkless::settings()) {
    no strict 'refs';
    *{$name} = sub { my $self = shift; return $self->set($name, @_) };
}

sub call {
    my ($self, $number, $result, @args) = @_;
    return $self->_call($number, $result // -1, @args) ? $self : Forkless::Error::give($self);
}

# Launch from a template, if nothing but the time differs: a Forkless::Warm, or true for the set of the process.
sub warm {
    my ($self, $warm) = @_;
    return $self if !$warm;
    if (!ref $warm) {
        require Forkless::Warm;
        $warm = Forkless::Warm->of_process or return Forkless::Error::give($self);
    }
    return $self->_warm($warm) ? $self : Forkless::Error::give($self);
}

# A Forkless::Sandbox, or the options of one for this command.
sub sandbox {
    my ($self, $sandbox) = @_;
    # The result of a `new` that has failed must not mean that there is none.
    Forkless::_croak('sandbox: undefined, as from a new that has failed (0: no sandbox)') if !defined $sandbox;
    return $self                                                                          if !$sandbox;
    if (ref $sandbox eq 'HASH') {
        require Forkless::Sandbox;
        $sandbox = Forkless::Sandbox->new(%$sandbox) or return Forkless::Error::give($self);
    }
    return $self->_sandbox($sandbox) ? $self : Forkless::Error::give($self);
}

# A Forkless::Pty. It lives as long as the command and its children.
sub pty {
    my ($self, $pty) = @_;
    Forkless::_croak('pty: undefined, as from a new that has failed (0: no terminal)') if !defined $pty;
    return $self                                                                       if !$pty;
    $self->{pty} = $pty;
    return $self->_pty($pty) ? $self : Forkless::Error::give($self);
}

# A Forkless::Cgroup, or a handle or the number of a descriptor of the directory of one.
sub cgroup {
    my ($self, $group) = @_;
    return $self->set(cgroup => ref $group && eval { $group->isa('Forkless::Cgroup') } ? $group->fileno : $group);
}

sub cwd {
    my ($self, $place) = @_;
    # An object of File::Temp or Path::Tiny is a path.
    my $is_handle = ref $place && !overload::Method($place, '""');
    return $self->set($is_handle ? 'current_dir_fd' : 'current_dir', $place);
}

sub variable {
    my ($self, $name, $value) = @_;
    return defined $value ? $self->set(env => $name, $value) : $self->set(env_remove => $name);
}

sub environment {
    my ($self, $all) = @_;
    $self->set('env_clear') or return;
    return $self->_each($all, sub { $self->variable(@_) });
}

# Redirect a descriptor of the program.
sub stream {
    my ($self, $number, $what) = @_;
    return $self->set(fd_inherit => $number) if !defined $what;
    if (ref $what eq 'ARRAY') {
        my ($way, $path, $mode) = @$what;
        my $flags = Forkless::Command::_flags($way // '') // Forkless::_croak('a file to open is [MODE, PATH] with a mode of <, >, >>, +< or +>');
        return $self->set(fd_open => $number, $path, $flags, $mode // 0666);
    }
    if (!ref $what && ref \$what ne 'GLOB') {
        return $self->set("fd_$what", $number)                   if $what =~ /\A(?:inherit|null|pipe|socketpair)\z/;
        return $self->set(fd_dup => $number, $STREAM{$what})     if exists $STREAM{$what};
        Forkless::_croak("descriptor $number: expected a handle, a number, a file or a name such as 'pipe': $what") if $what !~ /\A\d+\z/;
    }
    return $self->set(fd => $number, $what);
}

sub spawn {
    my ($self) = @_;
    my $child = $self->_spawn or return Forkless::Error::give($self);
    $child->{pty} = $self->{pty};
    return $child->_pass_on($self->{raise});
}

sub launch {
    my ($self) = @_;
    my $child = $self->_launch or return Forkless::Error::give($self);
    $child->{pty} = $self->{pty};
    return $child->_pass_on($self->{raise});
}

# Run until the program has ended. Returns the status, as $?; -1 on failure, as system, because undef == 0.
sub status {
    my ($self) = @_;
    my $child = $self->spawn or return $? = -1;
    return $child->wait // -1;
}

sub prepare {
    my ($self) = @_;
    my $prepared = $self->_prepare or return Forkless::Error::give($self);
    $prepared->{raise}   = $self->{raise};
    $prepared->{handles} = { %{ $self->{handles} // {} } };
    $prepared->{pty}     = $self->{pty};
    return $prepared;
}

sub capture {
    my ($self, %how) = @_;
    for my $name (sort keys %how) {
        next if $CAPTURE{$name};
        my $remedy = defined Forkless::Command::_kinds($name) ? '; it is a setting: give it to new' : '';
        Forkless::_croak("capture: no such option: $name$remedy");
    }
    # Perl would make numbers of them, which mean other limits.
    for my $name (grep { defined $how{$_} } qw(limit timeout grace linger)) {
        Forkless::_croak("capture: $name: expected a number, not $how{$name}") if $how{$name} !~ $NUMBER;
        Forkless::_croak("capture: $name: $how{$name} is below 0")             if $how{$name} < 0 && $name =~ /\A[lt]i/;
    }
    my $is_handle = ref $how{input} && !overload::Method($how{input}, '""');
    Forkless::_croak('capture: input: expected bytes, not a reference') if $is_handle;
    my $signal = defined $how{signal} ? Forkless::Child::signal_number($how{signal}) : 0;
    my $flags  = ($how{merged} ? 1 : 0) | ($how{kill_at_limit} ? 2 : 0);
    my $output = Forkless::Command::_capture(
        $self, $flags, $signal, $how{input}, $how{limit} // 0, $how{timeout}, $how{grace}, $how{linger},
    );
    $? = $output ? $output->{status} : -1;
    return $output // Forkless::Error::give($self);
}

package Forkless::Prepared;

our $VERSION = '0.1.0';

*spawn   = \&Forkless::Command::spawn;
*launch  = \&Forkless::Command::launch;
*status  = \&Forkless::Command::status;
*capture = \&Forkless::Command::capture;

package Forkless::Output;

our $VERSION = '0.1.0';

for my $name (qw(status stdout stderr timed_out held_open stdout_cut stderr_cut input_left usage limit_events)) {
    no strict 'refs';
    *{$name} = sub { return $_[0]{$name} };
}

1;

__END__

=encoding UTF-8

=head1 NAME

Forkless::Command - a program to start, with its settings

=head1 SYNOPSIS

    use Forkless;

    my $command = Forkless->new(
        cmd    => ['sort', '-u', 'words'],
        cwd    => '/usr/share/dict',
        env    => { LC_ALL => 'C', DEBUG => undef },
        stdout => 'pipe',
        rlimit => ['AS', 1 << 30, 1 << 30],
    );
    my $child = $command->spawn or die "$Forkless::error\n";

=head1 DESCRIPTION

C<< Forkless->new >> creates a command. By default the program inherits the environment, the working directory, the standard streams and the
signal mask. It inherits no other descriptors, even those that are not close-on-exec. SIGPIPE and SIGFPE are reset to their default action.

Settings are pairs of a name and a value:

=over

=item cmd

A reference to an array: the program, and its arguments. The program is a path if it has a slash in it; otherwise it is searched for in PATH. No
shell is involved.

=item cwd

The working directory: a path, or a handle of C<open> or C<opendir>.

=item env

A hash of environment variables to set. undef removes a variable.

=item environment

A hash that replaces the whole environment.

=item stdin, stdout, stderr

Redirections of the program's descriptors 0, 1 and 2.

=item fds

A hash of further descriptors of the program, by number.

    stdin  => 'null',                    # /dev/null
    stdout => ['>>', 'log'],             # a file, opened in the child; also <, >, +<, +>; nothing in procfs
    stderr => 'stdout',                  # the same as its standard output (2>&1)
    fds    => { 5 => $handle, 6 => 'socketpair' },

Other values are C<'pipe'> (for 0, 1 and 2), C<'inherit'>, and the number of a descriptor of your process. The command keeps a reference to a
handle, so close the write end of a pipe by C<close>. A handle must be open when the command is run. A tied or in-memory handle has no
descriptor and throws an exception.

=item warm

A true value, or a L<Forkless::Warm>: launch the program from a template that the dynamic loader has loaded before, if nothing but the time differs.
Experimental.

=item sandbox

A L<Forkless::Sandbox>, or a reference to a hash of the options of one: what the program may do, if it is not trusted. 0: no sandbox; undef is an error.

=item memory_max, tasks_max, cpu_max, io_max, cgroup_parent

Limits of the program with all that it starts: bytes, or a text such as C<512M>; processes and threads; CPUs, such as C<1.5>; a line of F<io.max>, such as
C<8:0 rbps=10485760>; all C<max> for none. Each launch makes a cgroup below C<cgroup_parent> (default: the cgroup of this process), and removes it when the
program has ended: what is left in it is killed. So it is by C<kill> and at a timeout. See C<limit_events> of L<Forkless::Child>.

=item kill_tree

With a true value, all that the program has started ends with it, also what has left its session: at its end, by C<kill>, at a timeout of C<capture>,
and when this process ends. It needs Linux 6.12.

=item pty

A L<Forkless::Pty>: the program starts a session on this terminal, which is its controlling terminal, and those of its standard streams that are
not set otherwise.

=item raise

With a true value, errors are thrown as L<Forkless::Error> objects.

=item all other settings

Each function C<forkless_command_NAME> of F<forkless.h> is a setting C<NAME>, with the arguments of that function:

    umask  => 077,
    setsid => 1,
    rlimit => ['NOFILE', 64, 64],
    rlimit => [['CPU', 1, 2], ['CORE', 0, 0]],    # two limits

A descriptor can be a handle. Signals (C<TERM>), limits (C<NOFILE>), namespaces (C<user>), launchers (C<fork>), scheduling policies (C<batch>)
and I/O classes (C<idle>) can be names. F<docs/settings.md> of the sources describes each setting.

=back

=head1 METHODS

Each setting of the library is also a method that returns the command: C<< $command->umask(077)->nice(5) >>.

=head2 new

    my $command = Forkless::Command->new(cmd => [$program, @arguments], %settings);

The same as C<< Forkless->new >>.

=head2 set

    $command->set('rlimit', 'NOFILE', 64, 64);

Applies a setting, given its name.

=head2 stream

    $command->stream(1, 'null');

Redirects a descriptor of the program, with the values of C<stdout> above.

=head2 sandbox($sandbox)

    $command->sandbox({ mode => 'landlock', write => ['.'] });

The setting C<sandbox>.

=head2 pty($pty)

    $command->pty(Forkless::Pty->new);

The setting C<pty>.

=head2 warm($warm)

    $command->warm($warm);

The setting C<warm>. L<Forkless::Child/cold_reason> tells why a launch was cold.

=head2 cwd, variable, environment

    $command->cwd('/')->variable(LC_ALL => 'C')->environment({ PATH => '/bin' });

C<cwd> sets the working directory. C<variable> sets an environment variable; undef removes it. C<environment> replaces the environment.

=head2 call

    $command->call($number, $variable, @arguments);

Makes a system call in the child, given its number. The result is stored in the variable (0 to 14; undef: not stored). An argument is a number; a
reference to a string, which is passed as a pointer to its bytes; or a reference to a reference to the number of a variable, which is passed as
the stored result of an earlier call.

=head2 spawn

    my $child = $command->spawn;

Starts the program and returns a L<Forkless::Child> once the program has been executed.

=head2 launch

    my $child = $command->launch;

Returns as soon as the child exists. C<wait> or C<wait_exec> of the child reports whether the program could be executed. If it is known already that it
could not be, C<launch> returns undef, as C<spawn> does.

=head2 status

    $command->status == 0 or die;

Runs the program and waits for its end. Returns its status, and sets C<$?> to it. If the program cannot be started, the status is -1, as that of
C<system>.

=head2 capture

    my $output = $command->capture(input => $text, timeout => 10, limit => 1 << 20);
    print $output->stdout if $output && $output->status == 0;

Runs the program until it has ended, writes the input, and reads both output streams. Signal handlers run only afterwards: use C<timeout> instead
of C<alarm>. Options:

=over

=item input

Bytes for its standard input.

=item timeout

Seconds until the program is sent C<signal> (default: no timeout). Only the program is killed; with the setting C<< process_group => 0 >> its
process group, with C<< kill_tree => 1 >> all that it has started.

=item signal, grace

The signal to send at the timeout (default: SIGKILL), and the seconds until SIGKILL follows.

=item limit, kill_at_limit

The number of bytes to keep of each stream (default: all), and whether to kill the program when it writes more.

=item merged

Redirects standard error to standard output.

=item linger

Seconds to keep reading after the program has ended while other processes have its streams open (default: until they close them).

=back

=head2 prepare

    my $prepared = $command->prepare or die "$Forkless::error\n";
    $prepared->spawn for 1 .. 100;

Does the work that is the same for all launches once. The environment is copied at this point. The returned object has the methods C<spawn>,
C<launch>, C<status>, C<capture> and C<steps>. C<Forkless::launch_all> starts several of them.

=head2 steps

    print $prepared->steps;

Lists the steps of the child, one per line. Only for prepared commands.

=head1 OUTPUT

The object that C<capture> returns has these methods:

=over

=item $output->stdout, $output->stderr

The bytes of each stream.

=item $output->status

The status, as C<$?>.

=item $output->timed_out

Whether the timeout expired.

=item $output->held_open

Whether another process still had the streams open.

=item $output->stdout_cut, $output->stderr_cut

The number of bytes of each stream beyond the limit, which were discarded.

=item $output->input_left

The number of bytes of the input that the program did not read.

=item $output->usage

The resources used, as in L<Forkless::Child/usage>.

=item $output->limit_events

How often limits were reached, as in L<Forkless::Child/limit_events>; zeroes without limits.

=back

=head1 SEE ALSO

L<Forkless>, L<Forkless::Child>, L<Forkless::Error>

=head1 AUTHOR

The forkless maintainers.

=head1 LICENSE

MIT or Apache-2.0, at your option.

=cut
