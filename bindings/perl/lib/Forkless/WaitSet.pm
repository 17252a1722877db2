package Forkless::WaitSet;
use v5.16;
use warnings;
use Forkless ();
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

# The child belongs to the set from now on. Returns its key.
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

# The next child that has ended, and its value. Empty list at the timeout or if the set is empty.
sub wait {
    my ($self, $timeout) = @_;
    my @answer = $self->_wait($timeout, $self->{children}) or return;
    return Forkless::Error::give($self) if !defined $answer[0];
    my ($number, $status, $errno) = @answer;
    my ($child, $value) = $self->_take($number);
    $? = $errno ? -1 : ($child->{status} = $status);
    $! = $errno if $errno;
    return ($child, $value);
}

sub remove {
    my ($self, $key) = @_;
    my $number = $self->{number}{$key} // Forkless::_croak('no such key');
    $self->_remove($key, $self->{children}{$number}[0]) or return Forkless::Error::give($self);
    my ($child) = $self->_take($number);
    return $child;
}

sub signal {
    my ($self, $key, $signal) = @_;
    return $self->_signal($key, Forkless::Child::signal_number($signal)) ? 1 : Forkless::Error::give($self);
}

# Readable when a child has ended; then call wait(0) until it returns an empty list.
sub handle {
    my ($self) = @_;
    return $self->{handle} if $self->{handle};
    no warnings 'io';
    open my $handle, '<&', $self->_fd or return;
    return $self->{handle} = $handle;
}

1;

__END__

=encoding UTF-8

=head1 NAME

Forkless::WaitSet - wait for the next of many children to end

=head1 SYNOPSIS

    use Forkless;
    use Forkless::WaitSet;

    my $set = Forkless::WaitSet->new;
    $set->insert($_->spawn, $_) for @commands;
    while (my ($child, $command) = $set->wait) {
        print $child->pid, ' has ended: ', $child->status, "\n";
    }

=head1 DESCRIPTION

A set of children. Waiting for the next one to end costs the same for any number of children.

A child belongs to the set from C<insert> until C<wait> or C<remove> returns it. In the meantime its own methods that wait or send signals
die. So do C<stdin>, C<stdout> and C<stderr> unless they were called before C<insert>.

=head1 METHODS

=head2 new

    my $set = Forkless::WaitSet->new;
    my $set = Forkless::WaitSet->new(raise => 1);

Makes an empty set. With C<raise> errors are thrown as L<Forkless::Error> objects.

=head2 insert

    my $key = $set->insert($child, $value);

Adds a child. C<wait> returns C<$value> with it. The key is for C<signal> and C<remove>.

=head2 wait

    my ($child, $value) = $set->wait;
    my ($child, $value) = $set->wait($seconds);

Waits for a child to end and returns it, with its value. C<$?> is set, to -1 if the child was launched but could not execute its
program: then C<$!> has the reason, and C<< $child->wait >> the error. Returns an empty list if no child has ended after C<$seconds>, or if the set is
empty. Signal handlers run in the meantime, and may die. In a copy of the process, made with C<fork>, it fails with ECHILD in C<$!>: the children
are not the copy's.

=head2 signal

    $set->signal($key, 'TERM');

Sends a signal to a child in the set.

=head2 remove

    my $child = $set->remove($key);

Takes a child out of the set.

=head2 count

The number of children in the set.

=head2 handle

A handle that is readable when a child has ended, for event loops. Then call C<wait(0)> until it returns an empty list.

=head1 SEE ALSO

L<Forkless>, L<Forkless::Child>

=head1 AUTHOR

The forkless maintainers.

=head1 LICENSE

MIT or Apache-2.0, at your option.

=cut
