local function show(what, ...) print(what, ...) io.stdout:flush() end
for _, line in ipairs{"uname -s", "/bin/echo 'a  b' \"c d\"", "echo one; echo two", "printf 'x\\ny\\n' | tr a-z A-Z", "exit 3",
    "nonesuch --x", "kill -9 $$", "sh -c 'kill -TERM $$'", "cat missing", "cat > written <<X\nhi\nX\n", "cat < written", "", "(true", "# nothing"} do
    show("execute", line, os.execute(line))
    local p = io.popen(line)
    local text = p:read("a")
    show("popen", line, text, p:close())
end
show("a shell", os.execute())
local p = io.popen("tr a-z A-Z > upper", "w"); p:write("through a pipe\n"); show("w", p:close())
for line in io.lines("upper") do show("upper", line) end
local many, sum = {}, 0
for n = 1, 100 do many[n] = io.popen("expr " .. n .. " + 1") end
for n = 100, 1, -1 do sum = sum + many[n]:read("n"); assert(many[n]:close()) end
show("many", sum)
local left = io.popen("cat"); show("reads our input", left:read("a"), left:close())
show("bad mode", pcall(io.popen, "true", "rw"))
io.popen("sleep 0"); collectgarbage()
io.stderr:write("to standard error\n")
os.execute("ls /nonexistent")
os.exit(9)
