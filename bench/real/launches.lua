-- how, MiB of a table, open files, launches, line. See README.md for "ready", "go" and "done".
local how, mib, files, count, line = arg[1], tonumber(arg[2]), tonumber(arg[3]), tonumber(arg[4]), arg[5]
io.stdout:setvbuf("no")
local heap, open = {}, {}
for n = 1, mib << 16 do heap[n] = 1.5 end
for n = 1, files do open[n] = assert(io.open("/dev/null")) end
print("ready")
io.read()
for n = 1, count do
    if how == "execute" then
        assert(os.execute(line))
    else
        local stream = io.popen(line)
        stream:read("a")
        assert(stream:close())
    end
end
print("done")
