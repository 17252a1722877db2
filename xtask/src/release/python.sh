# The wheel, as a user has it.
say() { { set +x; } 2>/dev/null; echo "packages: $*"; set -x; }

python3 -m venv /tmp/venv
/tmp/venv/bin/pip install -q --no-index packages/forkless-*.whl
/tmp/venv/bin/python - <<'END'
import forkless, importlib.metadata as metadata
assert forkless.run(["echo", "said"], capture_output=True, text=True).stdout == "said\n"
forkless.install()
import subprocess
assert subprocess.run("exit 3", shell=True).returncode == 3
about = metadata.metadata("forkless")
assert about["License-Expression"] == "MIT OR Apache-2.0", about
files = {file.name for file in metadata.files("forkless")}
assert {"LICENSE-MIT", "LICENSE-APACHE", "THIRD-PARTY.txt", "py.typed"} <= files, files
END
rm -r /tmp/venv
say 'the wheel works'
