<?php
// how, MiB of an array, open files, launches, line. See README.md for "ready", "go" and "done".
[, $how, $mib, $files, $count, $line] = $argv;
ini_set("memory_limit", "-1");
$heap = $mib > 0 ? array_fill(0, $mib << 16, 1.5) : [];
$open = [];
for ($n = 0; $n < $files; $n++) $open[] = fopen("/dev/null", "r") ?: exit("too few files\n");
echo "ready\n";
fgets(STDIN);
for ($n = 0; $n < $count; $n++) {
    $rows = [];
    if ($how === "exec") exec($line, $rows, $status);
    else $status = proc_close(proc_open($line, [], $pipes));
    if ($status !== 0) exit("status $status\n");
}
echo "done\n";
