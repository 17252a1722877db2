package Forkless::Sandbox;
use v5.16;
use warnings;
use Forkless ();
use Forkless::Error;

our $VERSION = '0.1.0';

my %OPTION = map { $_ => 1 } qw(mode read write network keep_env change_attributes raise);

sub new {
    my ($class, %how) = @_;
    for my $name (sort keys %how) {
        Forkless::_croak("no such option: $name") if !$OPTION{$name};
    }
    Forkless::_croak("mode: expected 'landlock'") if ($how{mode} // '') ne 'landlock';
    my $network = $how{network} // 'refused';
    Forkless::_croak("network: expected 'refused' or 'host', not '$network'") if $network !~ /\A(?:refused|host)\z/;
    my @lists = map { ref eq 'ARRAY' ? $_ : defined ? [$_] : [] } @how{qw(read write keep_env)};
    my $self = $class->_landlock(@lists, $network eq 'host', !!$how{change_attributes}) or return Forkless::Error::give(\%how);
    return $self;
}

1;

__END__

=encoding UTF-8

=head1 NAME

Forkless::Sandbox - what a program may do that is not trusted

=head1 SYNOPSIS

    use Forkless;
    use Forkless::Sandbox;

    my $sandbox = Forkless::Sandbox->new(mode => 'landlock', write => '/srv/results') or die "$Forkless::error\n";
    my $output  = Forkless->new(cmd => ['analyse'], cwd => '/srv/results', sandbox => $sandbox)->capture(timeout => 30);

=head1 DESCRIPTION

A sandbox is prepared once and serves any number of commands. It needs no privileges and no namespaces, but Linux 6.2. The program reads the
programs and libraries of the system, and changes nothing but what C<write> names. It reaches no network, no Unix socket and no other process,
has no capabilities, and inherits few variables. F<docs/sandbox.md> of the sources says what Landlock cannot hide.

=head1 METHODS

=head2 new

    my $sandbox = Forkless::Sandbox->new(%options);

Returns undef and sets C<$Forkless::error> if the kernel has no Landlock of Linux 6.2, or if a path cannot be opened. Options:

=over

=item mode

C<landlock>. Required.

=item read, write

A path, or a reference to an array of paths: files and directories that the program may read, or also write to, with all below them.

=item network

C<refused> (default), or C<host>: the network of the caller, without Unix sockets.

=item keep_env

Names of variables that the program inherits beside C<PATH>, C<HOME>, C<TERM>, C<LANG> and the like.

=item change_attributes

Whether the program may change modes, owners and times. It may then do so for every file of its user.

=item raise

As for commands.

=back

=head1 SEE ALSO

L<Forkless>, L<Forkless::Command>

=head1 AUTHOR

The forkless maintainers.

=head1 LICENSE

MIT or Apache-2.0, at your option.

=cut
