BEGIN {
    while (("ls -a" | getline row) > 0) print "getline", row; print close("ls -a")
    print system("uname -s"), system("exit 3"), system("nonesuch"), system("kill -9 $$"), system("ls /nonexistent"); fflush()
    print "c\nb\na" | "sort"; print close("sort")
    print "x" | "cat 1>&2; exit 4"; print close("cat 1>&2; exit 4")
    print "quoted" | "sed 's/q\\(.\\)/Q \\1/'"; print close("sed 's/q\\(.\\)/Q \\1/'")
    both = "tr a-z A-Z"; print "two ways" |& both; close(both, "to"); both |& getline row; print row, close(both)
    for (n = 0; n < 40; n++) print n | ("cat > written" n)
    for (n = 0; n < 40; n++) { bad += close("cat > written" n); while ((getline row < ("written" n)) > 0) sum += row }
    print sum, bad; fflush()
    "date +%Y > year; cat year" | getline year; print (year > 2000)
    print "left open" | "cat"
}
