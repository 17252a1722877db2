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
