<?php
function show($what, $value) { echo $what, ": ", var_export($value, true), "\n"; }
foreach (["uname -s", "/bin/echo 'a  b' \"c d\"", "echo one; echo two", "printf 'x\\ny' | tr a-z A-Z", "exit 3",
    "nonesuch --x", "/nonesuch", "kill -9 $$", "kill -TERM $$", "cat missing", "ls /nonexistent 2>&1", "cat > written <<X\nhi\nX\n",
    "cat < written", "sed -n '\$p' written", "sh -c 'exit 7'", "A=b sh -c 'echo \$A'", "", "'unclosed"] as $line) {
    $rows = []; $status = -1;
    $last = @exec($line === "" ? " " : $line, $rows, $status);
    show("exec $line", [$last, $rows, $status]);
}
show("shell_exec", shell_exec("ls -a"));
show("backticks", `id -u | wc -l`);
show("shell_exec of nothing", shell_exec("true"));
ob_start(); $last = system("cat written written", $status); $all = ob_get_clean();
show("system", [$last, $all, $status]);
ob_start(); passthru("head -c 100000 /dev/zero", $status); show("passthru", [md5(ob_get_clean()), $status]);
$in = popen("cat written; exit 5", "r"); show("popen r", [fgets($in), feof($in), pclose($in)]);
$out = popen("tr a-z A-Z > upper", "w"); fwrite($out, "through a pipe\n"); show("popen w", pclose($out)); show("upper", file("upper"));
$out = popen("true", "w"); usleep(1000); show("popen w, unread", pclose($out));
$many = []; for ($n = 0; $n < 100; $n++) { $many[] = popen("expr $n + 1", "r"); }
$sum = 0; foreach (array_reverse($many) as $one) { $sum += (int)fgets($one); $status |= pclose($one); }
show("many", [$sum, $status]);
$writers = []; for ($n = 0; $n < 10; $n++) { $writers[] = popen("cat", "w"); }
foreach ($writers as $n => $one) { fwrite($one, "$n\n"); pclose($one); }
putenv("OWN=value x"); show("environment", shell_exec("printenv OWN"));
mkdir("sub"); chdir("sub"); show("directory", basename(trim(shell_exec("pwd"))) . basename(trim(shell_exec("/bin/pwd"))));
$pipes = []; $proc = proc_open(["cat"], [["pipe", "r"], ["pipe", "w"]], $pipes, "/", ["X" => "y"]);
fwrite($pipes[0], "both ways"); fclose($pipes[0]); show("proc_open", [stream_get_contents($pipes[1]), proc_close($proc)]);
file_put_contents("php://stderr", "to standard error\n");
passthru("ls /nonexistent");
exit(9);
