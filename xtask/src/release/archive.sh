# The archive, as a user has it.
say() { { set +x; } 2>/dev/null; echo "packages: $*"; set -x; }

mkdir -p /opt
tar -xzf packages/forkless-*-linux-gnu.tar.gz -C /opt
/opt/forkless-*/bin/forkless run true
/opt/forkless-*/bin/forkless bench --version
test -s /opt/forkless-*/share/man/man1/forkless-run.1
test -s /opt/forkless-*/THIRD-PARTY.txt
grep -q CycloneDX /opt/forkless-*/sbom.json
say 'the archive works'
