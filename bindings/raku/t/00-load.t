use Test;

use-ok 'Forkless';
use-ok 'Forkless::Proc::Async';

# A JSON reader is no part of Rakudo's setting: Rakudo has an internal one.
my $meta = Rakudo::Internals::JSON.from-json($?FILE.IO.parent(2).add('META6.json').slurp);
for $meta<provides>.kv -> $module, $path {
    my $file = $?FILE.IO.parent(2).add($path);
    ok $file.e, "$path exists";
    ok $file.slurp ~~ / 'unit ' [module | class] ' ' $module <?before <[\s;]>> /, "$path is $module";
}

require Forkless;
like ::('Forkless').WHO<&library-version>(), / ^ \d+ '.' \d+ '.' \d+ $ /, 'the C library is found';
is ::('Forkless').WHO<&library-version>(), $meta<version>, 'the C library has the version of the module';

done-testing;
