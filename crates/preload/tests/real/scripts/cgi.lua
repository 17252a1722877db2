#!/usr/bin/lua5.4
io.write("Content-Type: text/plain\r\n\r\n")
io.write(os.getenv("REQUEST_METHOD"), " ", os.getenv("QUERY_STRING") or "", "\n")
io.flush()
local length = tonumber(os.getenv("CONTENT_LENGTH") or "") or 0
if length > 0 then
    local upper = io.popen("tr a-z A-Z", "w")
    upper:write(io.read(length)); upper:close()
end
os.execute("/bin/echo 'from  /bin/echo'")
local p = io.popen("uname -s | tr a-z A-Z"); io.write(p:read("a")); print(p:close())
p = io.popen("expr 6 '*' 7"); io.write(p:read("a")); print(p:close())
print(os.execute("exit 3"))
print(os.execute("nonesuch 2>/dev/null"))
