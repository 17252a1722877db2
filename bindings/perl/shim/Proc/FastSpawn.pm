package Proc::FastSpawn;
use v5.16;
use warnings;
use Forkless::FastSpawn ();
use Exporter 'import';

# Of the original's interface.
our $VERSION = '1.2';
our @EXPORT  = qw(spawn spawnp fd_inherit);

BEGIN {
    no strict 'refs';
    *{$_} = \&{"Forkless::FastSpawn::$_"} for qw(spawn spawnp fd_inherit);
}

1;

__END__

=encoding UTF-8

=head1 NAME

Proc::FastSpawn - the functions of Forkless::FastSpawn under the original's name

=head1 SYNOPSIS

    use Proc::FastSpawn;

    my $pid = spawn '/bin/echo', ['echo', 'hello, world'];
    waitpid $pid, 0;

=head1 DESCRIPTION

For programs and modules that load Proc::FastSpawn. C<spawn>, C<spawnp> and C<fd_inherit> are those of L<Forkless::FastSpawn>, which never fork.

=head1 SEE ALSO

L<Forkless::FastSpawn>

=head1 AUTHOR

The forkless maintainers.

=head1 LICENSE

MIT or Apache-2.0, at your option.

=cut
