use v5.16;
use warnings;
use Test::More;

# Where the hint is, perl's own ops are ours; elsewhere they are perl's. Ours refuse a NUL, at which perl cuts an argument off.
my $nul = "x\0";
no warnings 'syscalls';

sub is_ours {
    my ($code) = @_;
    $code->($nul);
    return $? == -1;
}

sub outside { return system 'true', $_[0] }
my ($string, $list, $block, $qx, $readpipe, $eval, $after);
{
    use Forkless qw(system readpipe);
    $string   = sub { return system "true $_[0]" };
    $list     = sub { return system 'true', $_[0] };
    $block    = sub { return system {'true'} 'x', $_[0] };
    $qx       = sub { return `echo $_[0]` };
    $readpipe = sub { return readpipe "echo $_[0]" };
    $eval     = eval 'sub { return system "true", $_[0] }';
    { no Forkless; $after = sub { return system 'true', $_[0] } }
}
my ($only, $not) = do { use Forkless 'system'; (sub { system 'true', $_[0] }, sub { return `echo $_[0]` }) };

my %inside = (string => $string, list => $list, block => $block, qx => $qx, readpipe => $readpipe, eval => $eval, only => $only);
ok(is_ours($inside{$_}), "Forkless is used for: $_") for sort keys %inside;
ok(!is_ours(\&outside), 'perl is used before "use Forkless"');
ok(!is_ours($after), 'perl is used after "no Forkless"');
ok(!is_ours($not), 'perl is used for functions that were not named');
ok(!is_ours(sub { return system 'true', $_[0] }), 'perl is used after the end of the block');
ok(!is_ours(sub { return `echo $_[0]` }), '… for qx too');
{
    my $open = do { use Forkless 'open'; sub { open my $in, '-|', 'true', $nul } };
    ok(!$open->(), 'Forkless is used for: open');
    ok((sub { open my $in, '-|', 'true', $nul })->(), 'perl is used after the end of the block, for open');
}
is($_->('x'), 0, 'system runs in all forms') for $string, $list, $block, $eval, $after;
is($_->('x'), "x\n", 'qx runs in all forms') for $qx, $readpipe;

use Forkless qw(system);
is((system { 'sh' } 'name', '-c', 'test "$0" = name'), 0, 'system { program } runs this program');
is(system('true') || 'true', 'true', 'system is an expression');
is((system 'exit 3;') >> 8, 3, 'a command line is run');

{
    use warnings;
    my @warnings;
    local $SIG{__WARN__} = sub { push @warnings, @_ };
    is(system('echo', "a\0b"), -1, 'a NUL is refused');
    is($!, 'Invalid argument', '… with $!');
    is(scalar @warnings, 1, '… and a warning');
}

eval 'use Forkless "no_such_function"; 1';
like($@, qr/not exported/, 'import of an unknown name is an error');

# A function of this name that the package defines or imports is called instead.
{
    package Overridden;
    use subs 'system';
    sub system { return 'theirs' }
    use Forkless 'system';
    main::is(system('true'), 'theirs', 'an override is called');
}

done_testing;
