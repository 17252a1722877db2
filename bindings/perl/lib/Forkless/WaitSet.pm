package Forkless::WaitSet;
use v5.16;
use warnings;
use Carp ();
use Forkless::Child;
use Forkless::Error;

our $VERSION = '0.1.0';

sub new {
    my ($class, %how) = @_;
    my $self = $class->_new or return Forkless::Error::give(\%how);
    $self->{raise}    = $how{raise};
    $self->{children} = {};
    $self->{last}     = 0;
    return $self;
}

# The child is the set's from now on: what comes back is a key.
sub insert {
    my ($self, $child, $value) = @_;
    my $number = ++$self->{last};
    my $key    = $self->_insert($child, $number) // return Forkless::Error::give($self);
    $self->{children}{$number} = [$child, $value, $key];
    $self->{number}{$key} = $number;
    return $key;
}

sub count { return scalar keys %{ $_[0]{children} } }

sub _take {
    my ($self, $number) = @_;
    my $entry = delete $self->{children}{$number};
    delete $self->{number}{ $entry->[2] };
    return @$entry;
}

# The next to have ended and its value. Nothing if the time is up, or there is no child.
sub wait {
    my ($self, $timeout) = @_;
    my @answer = $self->_wait($timeout, $self->{children}) or return;
    return Forkless::Error::give($self) if !defined $answer[0];
    my ($number, $status, $errno) = @answer;
    my ($child, $value) = $self->_take($number);
    if (!$errno) {
        $? = $child->{status} = $status;
    }
    return ($child, $value);
}

sub remove {
    my ($self, $key) = @_;
    my $number = $self->{number}{$key} // Carp::croak('no such key');
    $self->_remove($key, $self->{children}{$number}[0]) or return Forkless::Error::give($self);
    my ($child) = $self->_take($number);
    return $child;
}

sub signal {
    my ($self, $key, $signal) = @_;
    return $self->_signal($key, Forkless::Child::signal_number($signal)) ? 1 : Forkless::Error::give($self);
}

# Readable when a child has ended: then call wait(0) until it gives none.
sub handle {
    my ($self) = @_;
    return $self->{handle} if $self->{handle};
    open my $handle, '<&', $self->_fd or return;
    return $self->{handle} = $handle;
}

1;
