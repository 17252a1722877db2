#!perl -T
use v5.16;
use warnings;
use Test::More;

use Forkless qw(system readpipe);

# Under -T, as perl's own: what comes from outside is not executed.
delete @ENV{qw(IFS CDPATH ENV BASH_ENV)};
my $tainted = substr $^X, 0, 0;
my $path    = $ENV{PATH};
plan skip_all => 'this perl has no taint checks' if !eval { require Scalar::Util } || !Scalar::Util::tainted($tainted);
ok(!eval { system '/bin/true'; 1 }, 'with the PATH of outside');
like($@, qr/Insecure \$ENV\{PATH\}/, '… in perl\'s words');
$ENV{PATH} = '/bin:/usr/bin';
is(system('/bin/true'), 0, 'with one of our own');
ok(!eval { system "/bin/true $tainted"; 1 }, 'a tainted line');
ok(!eval { system '/bin/true', $tainted; 1 }, 'a tainted argument');
like($@, qr/Insecure dependency in system/, '… in perl\'s words');
ok(!eval { my $out = `/bin/true $tainted`; 1 }, 'a tainted qx');
ok(Scalar::Util::tainted(my $out = `echo x`), 'what a program says is tainted');
ok(Scalar::Util::tainted((`echo x`)[0]), '… line by line too');

done_testing;
