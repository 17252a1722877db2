package Forkless::FastSpawn;
use v5.16;
use warnings;
use Forkless ();
use Exporter 'import';

our $VERSION = '0.1.0';
our @EXPORT  = qw(spawn spawnp fd_inherit);

1;
