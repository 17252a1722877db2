use v5.16;
use warnings;
use File::Find 'find';
use Test::More;

# What is given to others: the list of files, the documentation.
plan skip_all => 'no MANIFEST here' if !-e 'MANIFEST';
open my $list, '<', 'MANIFEST' or die;
chomp(my @listed = grep { /\S/ } map { s/\s.*//sr } readline $list);
my $built = qr{\A(?:blib/|Makefile(?:\.old)?\z|MYMETA\.|META\.|pm_to_blib\z|.*\.(?:o|bs|tar\.gz)\z|Forkless\.c\z|\.gitignore\z|Forkless-)};
my @there;
find({ no_chdir => 1, wanted => sub { push @there, s{\A\./}{}r if -f } }, '.');
is_deeply([sort @listed], [sort grep { !/$built/ } @there], 'MANIFEST has what is there');

my @pod = grep { /\.pm\z/ } @listed;
SKIP: {
    if (!eval { require Test::Pod }) {
        diag('SKIPPED: the syntax of POD because Test::Pod is not installed');
        skip 'no Test::Pod', 1;
    }
    Test::Pod::pod_file_ok($_) for grep { do { open my $file, '<', $_ or die; grep { /^=head1/ } readline $file } } @pod;
}

# Every program in the documentation compiles, and every method is told of.
open my $file, '<', 'lib/Forkless.pm' or die;
my ($code, $pod) = split /^__END__$/m, do { local $/; readline $file };
ok($pod, 'there is documentation');
for my $package (qw(Forkless::Command Forkless::Child Forkless::WaitSet Forkless::Error Forkless::Output)) {
    require Forkless;
    my %settings = map { $_ => 1 } Forkless::settings();
    no strict 'refs';
    for my $name (sort grep { defined &{"${package}::$_"} && /\A[a-z]/ } keys %{"${package}::"}) {
        next if $settings{$name} || $name =~ /\A(?:set|signal_number|give|variable|environment)\z/;
        next if $name =~ /\AO_/;
        like($pod, qr/\b\Q$name\E\b/, "$package: $name is in the documentation");
    }
}
for my $example ($pod =~ /^((?:    .*\n|\n)+)/mg) {
    next if $example !~ /;/ || $example =~ /^    [\$%] /m;
    my $lines = "no strict; no warnings; sub { package Example; $example }";
    ok(eval $lines, 'an example compiles') or diag("$@\n$example");
}

done_testing;
