package Forkless::Warm;
use v5.16;
use warnings;
use Forkless ();
use Forkless::Error;

our $VERSION = '0.1.0';

my %OPTION = map { $_ => 1 } qw(library templates idle life launches raise);

sub new {
    my ($class, %how) = @_;
    for my $name (keys %how) {
        Forkless::_croak("no such option: $name") if !$OPTION{$name};
    }
    my $self = $class->_open(@how{qw(library templates idle life launches)}) or return Forkless::Error::give(\%how);
    $self->{raise} = $how{raise};
    return $self;
}

# The set that `warm => 1` uses.
sub of_process {
    my ($class) = @_;
    return $class->_of_process;
}

sub start {
    my ($self, $prepared) = @_;
    return $self->_start($prepared) ? 1 : Forkless::Error::give($self);
}

1;

__END__

=encoding UTF-8

=head1 NAME

Forkless::Warm - launches from a template of the loaded program (experimental)

=head1 SYNOPSIS

    use Forkless;
    use Forkless::Warm;

    my $warm    = Forkless::Warm->new(templates => 4) or die "$Forkless::error\n";
    my $command = Forkless->new(cmd => ['git', '--version'], warm => $warm);
    for (1 .. 3) {
        my $child = $command->spawn or die "$Forkless::error\n";
        print $child->cold_reason // 'warm', "\n";
        $child->wait;
    }

=head1 DESCRIPTION

A template is a program that was executed once and stopped before its own code begins. A warm launch clones it, and so takes a fraction of the time
for a short program. A launch that could differ from a cold one is cold. The first launch of a program is cold, and starts the template beside it.
F<docs/warm.md> of the sources has the conditions, and the differences that a program can see.

C<< warm => 1 >> as a setting of a command uses one set of templates for the whole process; C<< warm => $object >> another set.

A template is a child of your process: a loop such as C<1 while wait != -1> does not end while there are templates. Templates end with the process,
however it ends. A forked copy of the process launches cold.

It needs F<libforkless_warm.so>, which C<cargo xtask dist> and the Debian package F<forkless> install. It needs x86-64 and glibc.

=head1 METHODS

Methods that fail return undef and set C<$Forkless::error>; with C<raise> they throw it.

=head2 new

    my $warm = Forkless::Warm->new(%options);

Creates a set of templates. They end when the object and all commands that use it are gone. Options:

=over

=item library

The absolute path of F<libforkless_warm.so> (default: searched for).

=item templates, launches

The number of templates that are kept (default: 16), and the number of launches after which one is replaced (default: 100).

=item idle, life

A template ends after this many seconds without a launch (default: 60), and in any case (default: 600).

=item raise

As for commands.

=back

=head2 of_process

The set that C<< warm => 1 >> uses.

=head2 start

    $warm->start($command->prepare) or print "cold: $Forkless::error\n";

Starts the template of a prepared command ahead of its first launch, and waits until it is ready. The error is the reason why launches of this
command are cold.

=head2 templates

The process IDs of the templates.

=head2 stats

A hash of counts: C<warm> and C<cold> launches, C<starts> of templates, C<refusals> (programs that cannot have one), and templates that ended because
they were C<idle> or because of C<crashes>.

=head1 SEE ALSO

L<Forkless>, L<Forkless::Command>, L<Forkless::Child/cold_reason>

=head1 AUTHOR

The forkless maintainers.

=head1 LICENSE

MIT or Apache-2.0, at your option.

=cut
