// The Go engine of `forkless bench`: os/exec. The protocol is in ../README.md.
package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

type engine struct {
	path   string
	args   []string
	attr   *syscall.SysProcAttr
	memory [][]byte // kept until the end
	group  *os.File // kept open: attr has its number
}

var answers = os.NewFile(4, "answers")

type sample struct{ held, total int64 }

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: engine PROGRAM [ARGS]...; requests at 3, answers at 4")
		os.Exit(2)
	}
	syscall.CloseOnExec(3)
	syscall.CloseOnExec(4)
	e := &engine{path: os.Args[1], args: os.Args[2:]}
	fmt.Fprintln(answers, "forkless-engine 2", strings.TrimPrefix(strings.Fields(runtime.Version())[0], "go"),
		"ids user-namespace cgroup")
	requests := bufio.NewScanner(os.NewFile(3, "requests"))
	for requests.Scan() {
		answer, err := e.answer(requests.Text())
		if err != nil {
			fail(err)
		}
		fmt.Fprintln(answers, answer)
	}
}

func fail(err error) {
	fmt.Fprintln(answers, "failed", strings.ReplaceAll(err.Error(), "\n", " "))
	os.Exit(1)
}

func (e *engine) answer(request string) (string, error) {
	word, rest, _ := strings.Cut(request, " ")
	switch word {
	case "cgroup":
		return "ok", e.setGroup(rest)
	case "plain":
		e.attr, e.group = nil, nil
		return "ok", nil
	case "memory", "ids", "user-namespace", "turn":
	default:
		return "", fmt.Errorf("unknown request %q", request)
	}
	numbers := []int{}
	for _, word := range strings.Fields(rest) {
		number, err := strconv.Atoi(word)
		if err == nil {
			numbers = append(numbers, number)
		}
	}
	expected := map[string]int{"memory": 1, "ids": 2, "user-namespace": 4, "turn": 3}[word]
	if len(numbers) != expected {
		return "", fmt.Errorf("%d numbers expected in %q", expected, request)
	}
	switch word {
	case "memory":
		return "ok", e.touch(numbers[0] << 20)
	case "ids":
		e.settings().Credential = &syscall.Credential{Uid: uint32(numbers[0]), Gid: uint32(numbers[1])}
		return "ok", nil
	case "user-namespace":
		attr := e.settings()
		attr.Cloneflags |= syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: numbers[0], HostID: numbers[1], Size: numbers[3]}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: numbers[0], HostID: numbers[2], Size: numbers[3]}}
		attr.GidMappingsEnableSetgroups = strings.HasSuffix(request, " allow")
		return "ok", nil
	default:
		return e.turn(time.Duration(numbers[0]), numbers[1], numbers[2])
	}
}

func (e *engine) settings() *syscall.SysProcAttr {
	if e.attr == nil {
		e.attr = &syscall.SysProcAttr{}
	}
	return e.attr
}

func (e *engine) setGroup(path string) error {
	group, err := os.Open(path)
	if err != nil {
		return err
	}
	e.group = group
	e.settings().UseCgroupFD = true
	e.settings().CgroupFD = int(group.Fd())
	return nil
}

// touch has memory outside Go's heap, so that the garbage collector has nothing to do with it.
func (e *engine) touch(length int) error {
	memory, err := syscall.Mmap(-1, 0, length, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		return err
	}
	for offset := 0; offset < length; offset += os.Getpagesize() {
		memory[offset] = 1
	}
	e.memory = append(e.memory, memory)
	return nil
}

func (e *engine) launch() (sample, error) {
	start := time.Now()
	command := exec.Command(e.path, e.args...)
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, os.Stderr
	command.SysProcAttr = e.attr
	if err := command.Start(); err != nil {
		return sample{}, fmt.Errorf("not launched: %w", err)
	}
	held := time.Since(start)
	err := command.Wait()
	total := time.Since(start)
	return sample{held.Nanoseconds(), total.Nanoseconds()}, err
}

func (e *engine) turn(limit time.Duration, fewest, most int) (string, error) {
	if _, err := e.launch(); err != nil {
		return "", err
	}
	samples := []sample{}
	cpu := cpuTime()
	start := time.Now()
	for len(samples) < most && (len(samples) < fewest || time.Since(start) < limit) {
		sample, err := e.launch()
		if err != nil {
			return "", err
		}
		samples = append(samples, sample)
	}
	wall := time.Since(start)
	answer := fmt.Appendf(nil, "done %d %d", wall.Nanoseconds(), (cpuTime() - cpu).Nanoseconds())
	for _, sample := range samples {
		answer = fmt.Appendf(answer, " %d %d", sample.held, sample.total)
	}
	return string(answer), nil
}

func cpuTime() time.Duration {
	sum := time.Duration(0)
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var usage syscall.Rusage
		if err := syscall.Getrusage(who, &usage); err == nil {
			sum += time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
		}
	}
	return sum
}
