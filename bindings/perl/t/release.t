use v5.16;
use warnings;
use Pod::Checker ();
use Test::More;

# Checks what is distributed: the list of files, the documentation, the metadata.
plan skip_all => 'no MANIFEST here' if !-e 'MANIFEST';
use ExtUtils::Manifest ();
$ExtUtils::Manifest::Quiet = 1;
is_deeply([ExtUtils::Manifest::manicheck()], [], 'what MANIFEST lists exists');
is_deeply([ExtUtils::Manifest::filecheck()], [], 'MANIFEST lists what exists, but for MANIFEST.SKIP');

# Every module has documentation, which mentions every method.
require Forkless;
my %settings = map { $_ => 1 } Forkless::settings();
my %packages = ('Forkless::Command' => ['Forkless::Command', 'Forkless::Prepared', 'Forkless::Output']);
my @pods;
for my $path (grep { m{\A(?:lib|shim)/.*\.pm\z} } sort keys %{ ExtUtils::Manifest::maniread() }) {
    open my $file, '<', $path or die;
    my (undef, $pod) = split /^__END__$/m, do { local $/; readline $file };
    push @pods, $pod // '';
    my $checker = Pod::Checker->new(-warnings => 2);
    open my $errors, '>', \my $found;
    $checker->parse_from_file($path, $errors);
    is($checker->num_errors + $checker->num_warnings, 0, "$path: podchecker finds nothing") or diag($found);
    ok($pods[-1] =~ /^=head1 $_$/m, "$path: $_") for qw(NAME SYNOPSIS DESCRIPTION AUTHOR LICENSE), 'SEE ALSO';
    my $module = $path =~ s{\A\w+/|\.pm\z}{}gr =~ s{/}{::}gr;
    like($pods[-1], qr/^=head1 NAME\n\n\Q$module\E - \S/m, "$path: its name");
    next if $path =~ /\Ashim/;
    ok(eval "require $module; 1", "$module is loaded") or diag($@);
    for my $package (@{ $packages{$module} // [$module] }) {
        no strict 'refs';
        for my $name (sort grep { defined &{"${package}::$_"} && /\A[a-z]/ } keys %{"${package}::"}) {
            next if $settings{$name} || $name =~ /\A(?:import|unimport|bootstrap)\z/;
            ok($pods[-1] =~ /^=(?:head2|item) .*\b\Q$name\E\b/m, "$package: $name is in the documentation");
        }
    }
}

# The metadata that CPAN shows.
my $meta = do { local $/; open my $file, '<', 'MYMETA.json' or die; readline $file };
like($meta, qr/"author" : \[\s*"the forkless maintainers"/, 'META has the author');
like($meta, qr/"license" : \[\s*"mit",\s*"apache_2_0"\s*\]/, 'META has the licenses');

# The examples of the documentation compile, also where the replacement of Proc::FastSpawn is not built.
local @INC = (@INC, 'shim');
for my $example (map { /^((?:    .*\n|\n)+)/mg } @pods) {
    next if $example !~ /;/ || $example =~ /^    [\$%] /m;
    my $lines = "no strict; no warnings; sub { package Example; $example }";
    ok(eval $lines, 'an example compiles') or diag("$@\n$example");
}

done_testing;
