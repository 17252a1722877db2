package Forkless::Command;
use v5.16;
use warnings;
use Carp  ();
use Fcntl qw(O_RDONLY O_WRONLY O_RDWR O_CREAT O_TRUNC O_APPEND);
use Forkless::Error;

our $VERSION = '0.1.0';

my %STREAM = (stdin => 0, stdout => 1, stderr => 2);
my %WAY    = (
    '<'  => O_RDONLY,
    '>'  => O_WRONLY | O_CREAT | O_TRUNC,
    '>>' => O_WRONLY | O_CREAT | O_APPEND,
    '+<' => O_RDWR,
    '+>' => O_RDWR | O_CREAT | O_TRUNC,
);

# Words for what C has numbers for: the first argument of these.
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

sub new {
    my ($class, @settings) = @_;
    Carp::croak('settings are pairs of a name and a value') if @settings % 2;
    my %given   = @settings;
    my $raise   = $given{raise};
    my $command = $given{cmd};
    my @words   = ref $command eq 'ARRAY' ? @$command : defined $command ? $command : ();
    Carp::croak('cmd: expected a reference to an array of a program and its arguments') if !@words;
    my $self = $class->_new($words[0]) or return Forkless::Error::give({ raise => $raise });
    $self->{raise} = $raise;
    $self->set(args => [@words[1 .. $#words]]) or return;
    # perl ignores this one, and programs are not used to that.
    $self->set(signal_default => 'FPE') or return;
    while (my ($name, $value) = splice @settings, 0, 2) {
        next if $name eq 'cmd' || $name eq 'raise';
        $self->_setting($name, $value) or return;
    }
    return $self;
}

# A setting of new's.
sub _setting {
    my ($self, $name, $value) = @_;
    return $self->stream($STREAM{$name}, $value) if exists $STREAM{$name};
    return $self->cwd($value)                    if $name eq 'cwd';
    return $self->_each($value, sub { $self->stream(@_) })      if $name eq 'fds';
    return $self->_each($value, sub { $self->variable(@_) })    if $name eq 'env' && ref $value eq 'HASH';
    return $self->environment($value)                           if $name eq 'environment';
    my $kinds = Forkless::Command::_kinds($name) // Carp::croak("no such setting: $name");
    return $self->set($name, $value) if ref $value ne 'ARRAY' || $kinds =~ /\A[LNB]\z/;
    # [[a, b], [c, d]]: twice. [a, b]: once, or twice if it takes one thing.
    my @calls = ref $value->[0] eq 'ARRAY' && $kinds !~ /\AL/ ? @$value : length $kinds == 1 ? map { [$_] } @$value : $value;
    for my $call (@calls) {
        $self->set($name, @$call) or return;
    }
    return $self;
}

sub _each {
    my ($self, $hash, $call) = @_;
    Carp::croak('expected a reference to a hash') if ref $hash ne 'HASH';
    for my $key (sort keys %$hash) {
        $call->($key, $hash->{$key}) or return;
    }
    return $self;
}

sub set {
    my ($self, $name, @values) = @_;
    if (@values && !ref $values[0] && $WORDS{$name}) {
        my $words = $WORDS{$name};
        $values[0] = $words->{ $values[0] } // Carp::croak("$name: no such word: $values[0]") if $values[0] !~ /\A\d+\z/;
    }
    return Forkless::Command::_set($self, $name, @values) ? $self : Forkless::Error::give($self);
}

for my $name (Forkless::settings()) {
    no strict 'refs';
    *{$name} = sub { my $self = shift; return $self->set($name, @_) };
}

sub call {
    my ($self, $number, $result, @args) = @_;
    return $self->_call($number, $result // -1, @args) ? $self : Forkless::Error::give($self);
}

sub cwd {
    my ($self, $place) = @_;
    return $self->set(ref $place ? 'current_dir_fd' : 'current_dir', $place);
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

# What the program finds at a descriptor.
sub stream {
    my ($self, $number, $what) = @_;
    return $self->set(fd_inherit => $number) if !defined $what;
    if (ref $what eq 'ARRAY') {
        my ($way, $path, $mode) = @$what;
        my $flags = $WAY{ $way // '' } // Carp::croak('a file to open is [MODE, PATH] with a mode of <, >, >>, +< or +>');
        return $self->set(fd_open => $number, $path, $flags, $mode // 0666);
    }
    if (!ref $what && ref \$what ne 'GLOB') {
        return $self->set("fd_$what", $number)                   if $what =~ /\A(?:inherit|null|pipe|socketpair)\z/;
        return $self->set(fd_dup => $number, $STREAM{$what})     if exists $STREAM{$what};
        Carp::croak("descriptor $number: no handle, number, file or word: $what") if $what !~ /\A\d+\z/;
    }
    return $self->set(fd => $number, $what);
}

sub spawn {
    my ($self) = @_;
    my $child = $self->_spawn or return Forkless::Error::give($self);
    return $child->_pass_on($self->{raise});
}

sub launch {
    my ($self) = @_;
    my $child = $self->_launch or return Forkless::Error::give($self);
    return $child->_pass_on($self->{raise});
}

# To its end: the status, as $?.
sub status {
    my ($self) = @_;
    my $child = $self->spawn or return;
    return $child->wait;
}

sub prepare {
    my ($self) = @_;
    my $prepared = $self->_prepare or return Forkless::Error::give($self);
    $prepared->{raise} = $self->{raise};
    return $prepared;
}

my %CAPTURE = map { $_ => 1 } qw(input limit timeout signal grace linger merged kill_at_limit);

sub capture {
    my ($self, %how) = @_;
    for my $name (keys %how) {
        Carp::croak("capture: no such option: $name") if !$CAPTURE{$name};
    }
    my $signal = defined $how{signal} ? Forkless::Child::signal_number($how{signal}) : 0;
    my $flags  = ($how{merged} ? 1 : 0) | ($how{kill_at_limit} ? 2 : 0);
    my $output = Forkless::Command::_capture(
        $self, $flags, $signal, $how{input}, $how{limit} // 0, $how{timeout}, $how{grace}, $how{linger},
    ) or return Forkless::Error::give($self);
    $? = $output->{status};
    return $output;
}

package Forkless::Prepared;

our $VERSION = '0.1.0';

*spawn   = \&Forkless::Command::spawn;
*launch  = \&Forkless::Command::launch;
*status  = \&Forkless::Command::status;
*capture = \&Forkless::Command::capture;

package Forkless::Output;

our $VERSION = '0.1.0';

for my $name (qw(status stdout stderr timed_out held_open stdout_cut stderr_cut input_left usage)) {
    no strict 'refs';
    *{$name} = sub { return $_[0]{$name} };
}

1;
