package Forkless::Pool;
use v5.16;
use warnings;
use Forkless::Error;

our $VERSION = '0.1.0';

sub new {
    my ($class, %how) = @_;
    my $idle = exists $how{idle} ? $how{idle} : 10;
    my $self = $class->_new($how{low} // 4, $how{high} // 16, $idle) or return Forkless::Error::give(\%how);
    $self->{raise} = $how{raise};
    return $self;
}

sub spawn {
    my ($self, $prepared) = @_;
    my $child = $self->_spawn($prepared) or return Forkless::Error::give($self);
    return $child->_pass_on($self->{raise});
}

sub launch {
    my ($self, $prepared) = @_;
    my $child = $self->_launch($prepared) or return Forkless::Error::give($self);
    return $child->_pass_on($self->{raise});
}

sub refresh { return $_[0]->_refresh // Forkless::Error::give($_[0]) }

1;
