#!perl -T
use v5.16;
use warnings;
use Test::More;

# Perl's own.
my %own = (
    'system'         => sub { system $_[0] },
    'system of list' => sub { system $_[0], 'x' },
    'qx'             => sub { my $out = `$_[0]` },
    'qx in a list'   => sub { my @out = `$_[0]` },
);

use Forkless qw(system readpipe popen open2 open3 capture);

my %ours = (
    'system'         => sub { system $_[0] },
    'system of list' => sub { system $_[0], 'x' },
    'qx'             => sub { my $out = `$_[0]` },
    'qx in a list'   => sub { my @out = `$_[0]` },
);

# With -T, as with perl's own functions, tainted data is not executed.
delete @ENV{qw(IFS CDPATH ENV BASH_ENV)};
my $tainted = substr $^X, 0, 0;
my $path    = $ENV{PATH};
plan skip_all => 'this perl has no taint checks' if !eval { require Scalar::Util } || !Scalar::Util::tainted($tainted);
# What is looked at first decides on the message.
for my $is_tainted ([0, 0], [1, 0], [0, 1], [1, 1]) {
    local $ENV{PATH} = $is_tainted->[1] ? $path : '/bin:/usr/bin';
    my $command = '/bin/true' . ($is_tainted->[0] ? $tainted : '');
    for my $name (sort keys %own) {
        my ($expected, $found) = map { eval { $_->{$name}->($command); 1 } ? '' : $@ =~ s/ at .*//sr } \%own, \%ours;
        is($found, $expected, "$name, tainted command and PATH: @$is_tainted");
    }
}
ok(!eval { system '/bin/true'; 1 }, 'a tainted PATH is refused');
like($@, qr/Insecure \$ENV\{PATH\}/, '… with perl\'s message');
$ENV{PATH} = '/bin:/usr/bin';
is(system('/bin/true'), 0, 'an untainted PATH is accepted');
ok(!eval { system "/bin/true $tainted"; 1 }, 'a tainted command line is refused');
ok(!eval { system '/bin/true', $tainted; 1 }, 'a tainted argument is refused');
like($@, qr/Insecure dependency in system/, '… with perl\'s message');
ok(!eval { my $out = `/bin/true $tainted`; 1 }, 'a tainted qx is refused');
ok(Scalar::Util::tainted(my $out = `echo x`), 'the output of a program is tainted');
ok(Scalar::Util::tainted((`echo x`)[0]), '… in list context too');
ok(!eval { popen('-|', "/bin/true $tainted"); 1 }, 'a tainted command line of popen is refused');
like($@, qr/Insecure dependency in piped open/, '… with perl\'s message');
ok(!eval { open2(my $out, my $in, '/bin/true', $tainted); 1 }, 'a tainted argument of open2 is refused');
ok(!eval { open3(my $in, my $out, undef, '/bin/true', $tainted); 1 }, '… of open3');
my $list = popen('-|', 'echo', 'x');
is(readline $list, "x\n", 'popen of untainted arguments');
my $pid = open3(my $input, my $lines, undef, 'echo', 'x');
is(readline $lines, "x\n", 'open3 of untainted arguments');
waitpid $pid, 0;
my $output = capture(['sh', '-c', 'echo x; echo y >&2']);
ok(Scalar::Util::tainted($output->stdout) && Scalar::Util::tainted($output->stderr), 'the output of capture is tainted');

done_testing;
