use v5.16;
use warnings;
use Errno ();
use Test::More;

use Forkless qw(capture popen open2 open3);
use Forkless::FastSpawn;
use Forkless::WaitSet;

# Errors in a call are reported at the caller's line, whether this module or perl detects them.
my $true = q{Forkless->new(cmd => ['true'])};
my %wrong = (
    q{Forkless->new('cmd')}                        => qr/pairs of a name and a value/,
    q{Forkless->new}                               => qr/cmd: expected/,
    q{Forkless->new(cmd => ['true'], colour => 1)} => qr/no such setting: colour/,
    q{Forkless->new(cmd => ['true'], fds => [])}   => qr/reference to a hash/,
    q{Forkless->new(cmd => ['true'], rlimit => ['NOSUCH', 1, 1])} => qr/rlimit: no such name: NOSUCH/,
    q{Forkless->new(cmd => ['true'], rlimit => ['AS', 1])}        => qr/rlimit takes 3 arguments, not 2/,
    q{Forkless->new(cmd => ['true'], stdout => 'nowhere')}        => qr/expected a handle, a number, a file or a name .*: nowhere/,
    q{Forkless->new(cmd => ['true'], stdout => ['x', '/'])}       => qr/a mode of </,
    q{Forkless->new(cmd => ['true'], stdout => {})}               => qr/expected a handle or the number/,
    q{Forkless->new(cmd => ['true'], fds => { 5 => \*TIED })}     => qr/tied handle/,
    q{Forkless->new(cmd => ['true'], fds => { 5 => $memory })}    => qr/in-memory/,
    q{Forkless->new(cmd => ['true'], signal_ignore => 'NOSUCH')}  => qr/no such signal: NOSUCH/,
    q{Forkless->new(cmd => ['true'], groups => 'x')}              => qr/reference to an array/,
    qq{$true->args('x')}                  => qr/reference to an array/,
    qq{$true->umask(1, 2)}                => qr/umask takes 1 argument/,
    qq{$true->umask('abc')}               => qr/expected a number: abc/,
    qq{$true->setsid('yes')}              => qr/expected a number: yes/,
    qq{$true->cpu_affinity(['x'])}        => qr/expected a number: x/,
    qq{$true->rlimit('AS', 1, '1k')}      => qr/expected a number: 1k/,
    qq{$true->capture(timeout => '2s')}   => qr/timeout: expected a number, not 2s/,
    q{Forkless->new(cmd => ['true'], fds => { stdout => 'null' })} => qr/expected a number: stdout/,
    q{$child->wait('x')}                  => qr/expected a number: x/,
    qq{$true->set('colour')}              => qr/no such setting: colour/,
    qq{$true->call(1, 1, 1 .. 7)}         => qr/at most 6 arguments/,
    qq{$true->call(1, 1, \\"\\x{263a}")}  => qr/Wide character/,
    qq{$true->seccomp("\\x{263a}")}       => qr/Wide character/,
    qq{$true->capture(colour => 1)}       => qr/no such option: colour at/,
    qq{$true->capture(umask => 1)}        => qr/no such option: umask; it is a setting/,
    qq{$true->capture(limit => '10k')}    => qr/limit: expected a number, not 10k/,
    qq{$true->capture(timeout => -1)}     => qr/timeout: -1 is below 0/,
    qq{$true->capture(input => [])}       => qr/input: expected bytes/,
    q{Forkless->new(cmd => ['true'], timeout => 1)}  => qr/no such setting: timeout; it is an option of capture/,
    q{require Forkless::Sandbox; Forkless::Sandbox->new(read => {})} => qr/read: expected a text/,
    qq{$true->capture(signal => 'X')}     => qr/no such signal: X/,
    qq{$true->capture(input => "\\x{263a}")} => qr/Wide character/,
    q{capture(['true'], colour => 1)}     => qr/no such option: colour/,
    q{capture()}                          => qr/cmd: expected/,
    q{$child->signal('NOSUCH')}           => qr/no such signal: NOSUCH/,
    q{$child->terminate('NOSUCH')}        => qr/no such signal: NOSUCH/,
    q{$released->kill}                    => qr/another thread/,
    q{(bless {}, 'Forkless::Command')->spawn}  => qr/not a Forkless::Command/,
    q{(bless {}, 'Forkless::Child')->kill}     => qr/not a Forkless::Child/,
    q{Forkless::Command::_spawn(undef)}   => qr/not a Forkless::Command/,
    q{Forkless::launch_all('x')}          => qr/not a Forkless::Prepared/,
    q{$set->remove(12345)}                => qr/no such key/,
    q{$set->insert('x')}                  => qr/not a Forkless::Child/,
    q{$set->signal(1, 'NOSUCH')}          => qr/no such signal: NOSUCH/,
    q{popen('x', 'true')}                 => qr/popen: expected the mode/,
    q{popen('-|')}                        => qr/popen: no command/,
    q{popen('-|', '-')}                   => qr/popen: the command -/,
    q{open3(my $x, my $y)}                => qr/open3: not enough arguments/,
    q{open2(my $x, my $y)}                => qr/open2: not enough arguments/,
    q{open2(my $x, my $y, '-')}           => qr/open2: the command -/,
    q{open3('<&NOSUCH', my $x, my $y, 'true')}        => qr/open3: NOSUCH is not open/,
    q{open3(my $x, my $y, my $z, 'no-such', 'x')}     => qr/open3: exec of no-such x failed/,
    q{open3('a constant', \*A, \*B, 'no-such', 'x')}  => qr/open3: exec of no-such x failed/,
    q{spawn('/bin/true', 'x')}            => qr/reference to an array/,
    q{spawn('/bin/true', ["\x{263a}"])}   => qr/Wide character/,
    q{Forkless->import('nosuch')}         => qr/not exported/,
);
{ package Tied; sub TIEHANDLE { return bless {}, shift } }
{ no warnings 'once'; tie *TIED, 'Tied' }
open my $memory, '>', \my $text or die;
my $child    = Forkless->new(cmd => ['sleep', '100'], kill_on_free => 1)->spawn;
my $released = Forkless->new(cmd => ['true'])->spawn;
my $set      = Forkless::WaitSet->new;
waitpid $released->release, 0;

sub message {
    my ($code) = @_;
    my @none = eval "no warnings; sub between { \n#line 77 \"caller\"\n$code }\n#line 99 \"elsewhere\"\nbetween()";
    return $@;
}
for my $code (sort keys %wrong) {
    my $message = message($code);
    like($message, $wrong{$code}, $code);
    like($message, qr/ at caller line 77\.?$/m, '… at the caller\'s line');
}

# Warnings are reported there, too.
my @warnings;
local $SIG{__WARN__} = sub { push @warnings, @_ };
eval qq{use warnings;\n#line 78 "caller"\n$true->arg(undef); Forkless->new(cmd => [undef]); popen('-|', '');\n};
like($_, qr/ at caller line 78\.?$/m, 'a warning is at the caller\'s line') for @warnings;
is(scalar @warnings, 3, 'each statement warns once') or diag(@warnings);
{
    no warnings;
    @warnings = ();
    $! = 0;
    is(popen('|-', ''), undef, 'popen of an empty command fails');
    is($! + 0, Errno::EPIPE(), '… with EPIPE, as open does');
    is(scalar @warnings, 0, '… and no warning under "no warnings"');
}

done_testing;
