package Forkless::FastSpawn;
use v5.16;
use warnings;
use Forkless ();
use Exporter 'import';

our $VERSION = '0.1.0';
our @EXPORT  = qw(spawn spawnp fd_inherit);

1;

__END__

=head1 NAME

Forkless::FastSpawn - the functions of Proc::FastSpawn, which never fork

=head1 SYNOPSIS

    use Forkless::FastSpawn;    # in place of: use Proc::FastSpawn;

    my $pid = spawn '/bin/echo', ['echo', 'hello, world'];
    waitpid $pid, 0;

=head1 DESCRIPTION

See L<Forkless/FORKLESS::FASTSPAWN>.

=cut
