# The C library, as a developer has it.
say() { { set +x; } 2>/dev/null; echo "packages: $*"; set -x; }

dpkg -i packages/libforkless0_*.deb packages/libforkless-dev_*.deb >/dev/null
cd packages
cc -Wall -Werror run.c $(pkg-config --cflags --libs forkless) -o shared
./shared | grep -q HELLO
ldd ./shared | grep -q libforkless.so.0
# Only our library is static.
cc -Wall -Werror run.c $(pkg-config --cflags forkless) -l:libforkless.a $(pkg-config --libs-only-l --static forkless | sed 's/-lforkless //') -o with_static
./with_static | grep -q HELLO
if ldd ./with_static | grep libforkless; then exit 1; fi
say 'C programs can be built with the library'

tar -xzf Forkless-*.tar.gz
cd Forkless-*/
test -s META.json
perl Makefile.PL
make >/dev/null
make test
make install >/dev/null
cd ..
perl -e 'use Forkless qw(system readpipe); exit(system("sh", "-c", "exit 3") >> 8 != 3 || readpipe("echo said") ne "said\n")'
say 'the Perl module can be built with the library'

# The archive says where it is by its own pkg-config file.
dpkg -r libforkless0 libforkless-dev >/dev/null
directory=$(echo /opt/forkless-*)
export PKG_CONFIG_PATH="$directory/lib/pkgconfig"
cc run.c $(pkg-config --define-variable=prefix="$directory" --cflags --libs forkless) -o from_archive
LD_LIBRARY_PATH="$directory/lib" ./from_archive | grep -q HELLO
say 'C programs can be built with the archive'
