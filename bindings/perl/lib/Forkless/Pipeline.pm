package Forkless::Pipeline;
use v5.16;
use warnings;
use Forkless ();
use Forkless::Child;
use Forkless::Command;
use Forkless::Error;

our $VERSION = '0.1.0';

sub new {
    my ($class, @programs) = @_;
    my %how = ref $programs[-1] eq 'HASH' ? %{ pop @programs } : ();
    my ($pipefail, $raise) = delete @how{qw(pipefail raise)};
    for my $name (sort keys %how) {
        Forkless::_croak("no such option: $name");
    }
    Forkless::_croak('a pipeline needs a program') if !@programs;
    my $self = $class->_new(!!$pipefail) or return Forkless::Error::give({ raise => $raise });
    $self->{raise} = $raise;
    for my $program (@programs) {
        my $command = ref $program eq 'ARRAY' ? Forkless->new(cmd => $program, raise => $raise) : $program;
        $command or return;
        $self->_add($command) or return Forkless::Error::give($self);
        # Its handles are open until the launch.
        push @{ $self->{commands} }, $command;
    }
    return $self;
}

# The children in their order; an empty list if one could not be started.
sub spawn {
    my ($self)   = @_;
    my @children = $self->_spawn;
    return Forkless::Error::give($self) if !defined $children[0];
    return map { $_->_pass_on($self->{raise}) } @children;
}

# Runs it to its end. Returns the status, as $?; -1 on failure.
sub status {
    my ($self) = @_;
    my ($status, @all) = $self->_status;
    if (!defined $status) {
        $? = -1;
        Forkless::Error::give($self);
        return -1;
    }
    $self->{statuses} = \@all;
    return $? = $status;
}

sub capture {
    my ($self, %how) = @_;
    my $output = Forkless::Command::capture($self, %how) or return;
    $self->{statuses} = $output->{statuses};
    return $output;
}

sub statuses { return @{ $_[0]{statuses} // [] } }

1;

__END__

=encoding UTF-8

=head1 NAME

Forkless::Pipeline - programs, each of which reads what the one before it writes

=head1 SYNOPSIS

    use Forkless;
    use Forkless::Pipeline;

    my $pipeline = Forkless::Pipeline->new(['sort'], ['uniq', '-c'], { pipefail => 1 });
    my $output   = $pipeline->capture(input => "b\na\nb\n", timeout => 10) or die "$Forkless::error\n";
    print $output->stdout;
    print "statuses: @{[$pipeline->statuses]}\n";

=head1 DESCRIPTION

The programs run at the same time. The standard output of each is the standard input of the next, as in a shell's C<a | b | c>. No program has an
end of a pipe that is not its own. A standard input or output that a command sets stays as it is set.

=head1 METHODS

=head2 new

    my $pipeline = Forkless::Pipeline->new(@programs, { %options });

Each program is a reference to an array of it and its arguments, a L<Forkless::Command>, or what C<prepare> of one returned. With the option
C<pipefail>, the status is that of the last program that failed; otherwise it is that of the last program. With C<raise>, errors are thrown.

=head2 capture

    my $output = $pipeline->capture(%options);

Runs it to its end, with the options and result of L<Forkless::Command/capture>: the input goes to the first program, and the result has the standard
output of the last, and the standard error of all. It sets C<$?>. There is no C<usage>.

=head2 status

Runs it until all programs have ended. Returns the status, and sets C<$?>; -1 if a program could not be started.

=head2 spawn

    my @children = $pipeline->spawn;

Starts the programs and returns a L<Forkless::Child> for each. If one cannot be started, the others are killed, and the list is empty.

=head2 statuses

The statuses of all programs, as C<$?>, after C<capture> or C<status>.

=head1 SEE ALSO

L<Forkless>, L<Forkless::Command>

=head1 AUTHOR

The forkless maintainers.

=head1 LICENSE

MIT or Apache-2.0, at your option.

=cut
