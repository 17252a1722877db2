# how, entries of an array, launches, line. See README.md for "ready", "go" and "done".
BEGIN {
    for (n = 0; n < entries; n++) heap[n] = n
    print "ready"; fflush()
    getline go < "/dev/stdin"
    for (n = 0; n < count; n++) {
        if (how == "system") status = system(line)
        else if (how == "print") { print n | line; status = close(line) }
        else { while ((line | getline row) > 0); status = close(line) }
        if (status != 0) { print "status " status; exit 1 }
    }
    print "done"
}
