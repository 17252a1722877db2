use v5.16;
use warnings;
use Test::More;

my @modules = qw(Forkless Forkless::FastSpawn Forkless::Command Forkless::Child Forkless::Error Forkless::WaitSet Forkless::Warm Forkless::Pipe Forkless::Pipeline Forkless::Pty);
use_ok($_) for @modules;
is($_->VERSION, Forkless->VERSION, "$_ has the version of the distribution") for @modules;
like(Forkless::library_version(), qr/\A\d+\.\d+\.\d+\z/, 'the library has a version');
like(Forkless::step_words(13), qr/exec/, 'a step has a name');
is(Forkless::step_words(9999), undef, 'a number that is no step has no name');

done_testing;
