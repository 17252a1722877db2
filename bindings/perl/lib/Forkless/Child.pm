package Forkless::Child;
use v5.16;
use warnings;
use Carp   ();
use Config ();
use Errno  ();
use Forkless::Error;
use IO::Handle ();

our $VERSION = '0.1.0';

my $n      = 0;
my %SIGNAL = map { $_ => $n++ } split ' ', $Config::Config{sig_name};

sub signal_number {
    my ($signal) = @_;
    return $signal if $signal =~ /\A\d+\z/;
    $signal =~ s/\ASIG//;
    return $SIGNAL{$signal} // Carp::croak("no such signal: $signal");
}

sub _pass_on {
    my ($self, $raise) = @_;
    $self->{raise} = $raise;
    $self->{pid}   = $self->_pid;
    return $self;
}

sub pid    { return $_[0]{pid} }
sub status { return $_[0]{status} }

sub _stream {
    my ($self, $number, $mode) = @_;
    return $self->{stream}{$number} if $self->{stream}{$number};
    my $fd = $self->_take_fd($number) // return Forkless::Error::give($self);
    open my $handle, $mode, $fd or return;
    $handle->autoflush(1) if $mode ne '<&=';
    return $self->{stream}{$number} = $handle;
}

sub stdin  { return $_[0]->_stream(0, '>&=') }
sub stdout { return $_[0]->_stream(1, '<&=') }
sub stderr { return $_[0]->_stream(2, '<&=') }

# The other one of a pair of sockets.
sub socket { return $_[0]->_stream($_[1], '+<&=') }

# Readable when the program has ended: for a loop of events.
sub pidfd {
    my ($self) = @_;
    return $self->{pidfd} if $self->{pidfd};
    my $fd = $self->_pidfd // return Forkless::Error::give($self);
    open my $handle, '<&', $fd or return;
    return $self->{pidfd} = $handle;
}

# A descriptor that the child has handed back.
sub handed_back {
    my ($self) = @_;
    my $fd = $self->_take_handed_back // return Forkless::Error::give($self);
    open my $handle, '+<&=', $fd or return;
    return $handle;
}

# A program that reads would else be waited for for ever.
sub _close_stdin {
    my ($self) = @_;
    my $stdin = delete $self->{stream}{0};
    return close $stdin if $stdin;
    local ($!, $Forkless::error) = ($!, $Forkless::error);
    my $fd = $self->_take_fd(0) // return;
    open my $handle, '>&=', $fd or return;
    return close $handle;
}

# The status, as $?; undef and ETIMEDOUT if it has not ended by then.
sub wait {
    my ($self, $timeout) = @_;
    if (defined $self->{status}) {
        $? = $self->{status};
        return $?;
    }
    $self->_close_stdin if !defined $timeout;
    return $self->_ended($self->_wait($timeout));
}

sub _ended {
    my ($self, @answer) = @_;
    if (!@answer) {
        $! = Errno::ETIMEDOUT();
        return;
    }
    return Forkless::Error::give($self) if !defined $answer[0];
    $? = $self->{status} = $answer[0];
    return $?;
}

# Also when it is stopped (0x7f in the lower byte) or goes on (0xffff), as of waitpid(2).
sub wait_change {
    my ($self, $timeout) = @_;
    my @answer = $self->_wait_change($timeout);
    return $self->_ended(@answer) if !@answer || !defined $answer[0];
    my $is_end = ($answer[0] & 0xff) != 0x7f && $answer[0] != 0xffff;
    return $is_end ? $self->_ended(@answer) : $answer[0];
}

sub wait_exec {
    my ($self, $timeout) = @_;
    my @answer = $self->_wait_exec($timeout);
    return $self->_ended if !@answer;
    return $answer[0] // Forkless::Error::give($self);
}

sub signal {
    my ($self, $signal) = @_;
    return defined $self->_signal(signal_number($signal)) ? 1 : Forkless::Error::give($self);
}

sub signal_group {
    my ($self, $signal) = @_;
    return defined $self->_signal_group(signal_number($signal)) ? 1 : Forkless::Error::give($self);
}

sub kill { return $_[0]->signal($_[1] // 'KILL') }

sub kill_on_free {
    my ($self, $on) = @_;
    return defined $self->_kill_on_free($on // 1) ? $self : Forkless::Error::give($self);
}

sub terminate {
    my ($self, $signal, $grace) = @_;
    return $self->_ended($self->_terminate(signal_number($signal // 'TERM'), $grace // 5));
}

sub terminate_group {
    my ($self, $signal, $grace) = @_;
    return $self->_ended($self->_terminate_group(signal_number($signal // 'TERM'), $grace // 5));
}

sub usage { return $_[0]->_usage // Forkless::Error::give($_[0]) }
sub route { return $_[0]->_route // Forkless::Error::give($_[0]) }

# Gives it up: its pid, for waitpid.
sub release { return $_[0]->_release // Forkless::Error::give($_[0]) }

1;
