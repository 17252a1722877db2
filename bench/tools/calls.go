// The same as crates/forkless/examples/tool_calls.rs, for Go's os/exec: calls SLOTS CYCLES MEBIBYTES DESCRIPTORS DIRECTORY TOOLS.
package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const tick = 5 * time.Millisecond

func number(word string) int {
	value, err := strconv.Atoi(word)
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

var counted atomic.Int64

func call(tool []string, directory string) time.Duration {
	begun := time.Now()
	limit, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	command := exec.CommandContext(limit, tool[1], tool[2:]...)
	command.Dir = directory
	var out, errors bytes.Buffer
	command.Stdout, command.Stderr = &out, &errors
	check(command.Run())
	counted.Add(int64(out.Len()))
	return time.Since(begun)
}

func cpu(who int) int64 {
	var usage syscall.Rusage
	check(syscall.Getrusage(who, &usage))
	return (usage.Utime.Nano() + usage.Stime.Nano()) / 1000
}

func main() {
	slots, cycles, directory := number(os.Args[1]), number(os.Args[2]), os.Args[5]
	memory := make([]byte, number(os.Args[3])<<20)
	for at := 0; at < len(memory); at += 4096 {
		memory[at] = 1
	}
	var files []*os.File
	for n := number(os.Args[4]); n > 0; n-- {
		file, err := os.Open("/dev/null")
		check(err)
		files = append(files, file)
	}
	list, err := os.ReadFile(os.Args[6])
	check(err)
	var tools [][]string
	for _, line := range strings.Split(strings.TrimRight(string(list), "\n"), "\n") {
		tools = append(tools, strings.Split(line, "\t"))
	}
	for _, tool := range tools {
		call(tool, directory)
	}
	counted.Store(0)
	var longest atomic.Int64
	go func() {
		for {
			begun := time.Now()
			time.Sleep(tick)
			if late := int64(time.Since(begun) - tick); late > longest.Load() {
				longest.Store(late)
			}
		}
	}()
	own, children := cpu(syscall.RUSAGE_SELF), cpu(syscall.RUSAGE_CHILDREN)
	var next atomic.Int64
	var all sync.WaitGroup
	lines := make([]string, slots)
	for slot := 0; slot < slots; slot++ {
		slot := slot
		all.Add(1)
		go func() {
			defer all.Done()
			for {
				at := int(next.Add(1)) - 1
				if at >= cycles*len(tools) {
					return
				}
				tool := tools[at%len(tools)]
				lines[slot] += fmt.Sprintf("%s\t%d\n", tool[0], call(tool, directory).Nanoseconds())
			}
		}()
	}
	all.Wait()
	own, children = cpu(syscall.RUSAGE_SELF)-own, cpu(syscall.RUSAGE_CHILDREN)-children
	fmt.Print(strings.Join(lines, ""))
	fmt.Printf("own\t%d\nchildren\t%d\nstop\t%d\nbytes\t%d\n", own, children, longest.Load(), counted.Load())
	if len(files)+len(memory) == 0 {
		os.Exit(1)
	}
}
