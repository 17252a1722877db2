package Forkless::Error;
use v5.16;
use warnings;
use overload '""' => sub { $_[0]{message} }, 'bool' => sub { 1 }, fallback => 1;

our $VERSION = '0.1.0';

sub errno   { return $_[0]{errno} }
sub step    { return $_[0]{step} }
sub message { return $_[0]{message} }

sub step_words {
    my ($self) = @_;
    return Forkless::step_words($self->{step});
}

# Dies with the last error, or says nothing, as the object of which this is a method was told.
sub give {
    my ($object) = @_;
    die $Forkless::error if $object->{raise};
    return;
}

1;
