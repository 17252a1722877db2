package Forkless::FastSpawn;
use v5.16;
use warnings;
use Forkless ();
use Exporter 'import';

our $VERSION = '0.1.0';
our @EXPORT  = qw(spawn spawnp fd_inherit);

1;

__END__

=encoding UTF-8

=head1 NAME

Forkless::FastSpawn - the functions of Proc::FastSpawn, which never fork

=head1 SYNOPSIS

    use Forkless::FastSpawn;    # in place of: use Proc::FastSpawn;

    my $pid = spawn '/bin/echo', ['echo', 'hello, world'];
    waitpid $pid, 0;

=head1 DESCRIPTION

The functions have the prototypes and the behaviour of those of L<Proc::FastSpawn>. All are exported.

F<shim> has a module named Proc::FastSpawn, for programs that load that name. C<FORKLESS_FASTSPAWN_SHIM=1 perl Makefile.PL> installs it.

=head1 FUNCTIONS

=head2 spawn

    $pid = spawn $file, \@argv;
    $pid = spawn $file, \@argv, \@environment;

Starts a program, with C<$argv[0]> as its name. The pid is for C<waitpid>.

=head2 spawnp

    $pid = spawnp 'sh', ['sh', '-c', 'echo $A'], ['PATH=/bin', 'A=1'];

The same, but searches PATH: that of C<@environment> if it is given. A file without C<#!> is run by a shell.

=head2 fd_inherit

    fd_inherit fileno $handle;
    fd_inherit fileno STDERR, 0;

Clears or sets the close-on-exec flag of a descriptor.

=head1 DIFFERENCES

=over

=item *

The environment may be a hash, which is sorted by name. Of array entries with the same name, the first counts.

=item *

If the program cannot be executed, the functions return undef and set C<$!>. The original may return the pid of a child that exits with status 127.

=item *

C<spawnp> does not fork.

=item *

A NUL in an argument is an error, EINVAL.

=back

As with the original, arguments are bytes: wide characters throw an exception.

=head1 SEE ALSO

L<Forkless>, L<Proc::FastSpawn>

=head1 AUTHOR

The forkless maintainers.

=head1 LICENSE

MIT or Apache-2.0, at your option.

=cut
