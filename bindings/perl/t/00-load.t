use v5.16;
use warnings;
use Test::More;

my @modules = qw(Forkless Forkless::FastSpawn Forkless::Command Forkless::Child Forkless::Error Forkless::WaitSet Forkless::Pipe);
use_ok($_) for @modules;
is($_->VERSION, Forkless->VERSION, "$_ has the version of all") for @modules;
like(Forkless::library_version(), qr/\A\d+\.\d+\.\d+\z/, 'and the library has one');
like(Forkless::step_words(13), qr/exec/, 'steps have words');
is(Forkless::step_words(9999), undef, 'what is no step has none');

done_testing;
