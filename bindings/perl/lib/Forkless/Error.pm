package Forkless::Error;
use v5.16;
use warnings;
use Forkless ();
use overload '""' => sub { $_[0]{message} }, 'bool' => sub { 1 }, fallback => 1;

our $VERSION = '0.1.0';

sub errno   { return $_[0]{errno} }
sub step    { return $_[0]{step} }
sub message { return $_[0]{message} }

sub step_words {
    my ($self) = @_;
    return Forkless::step_words($self->{step});
}

# Die with the last error if the object has `raise`; otherwise return nothing.
sub give {
    my ($object) = @_;
    die $Forkless::error if $object->{raise};
    return;
}

1;

__END__

=encoding UTF-8

=head1 NAME

Forkless::Error - the reason why starting a program or waiting for a child failed

=head1 SYNOPSIS

    use Forkless;

    my $command = Forkless->new(cmd => ['gitt', 'status']);
    if (!$command->spawn) {
        print "$Forkless::error\n";    # failed to start "gitt": exec: No such file or directory (searched PATH: ...)
        print $Forkless::error->errno, ' ', $Forkless::error->step_words, "\n";
    }

    eval { Forkless->new(cmd => ['gitt'], raise => 1)->spawn } or print $@->message, "\n";

=head1 DESCRIPTION

A method that fails returns undef or an empty list (C<status> of a command: -1), sets C<$!>, and leaves an object of this class in
C<$Forkless::error>. With the setting C<raise> it throws the object instead. As a string the object is its message.

Wrong names, argument counts and types always throw an exception (a string), with the line of the caller.

=head1 METHODS

=head2 errno

The number of the error, as C<$!>.

=head2 message

The message: the program, the step that failed, its object and the reason.

=head2 step, step_words

The step that failed: its number, and its name, such as C<exec>.

=head2 give

    return Forkless::Error::give($object);

For the modules of this distribution: throws C<$Forkless::error> if the object has the setting C<raise>; otherwise returns nothing.

=head1 SEE ALSO

L<Forkless>, L<Forkless::Command>

=head1 AUTHOR

The forkless maintainers.

=head1 LICENSE

MIT or Apache-2.0, at your option.

=cut
