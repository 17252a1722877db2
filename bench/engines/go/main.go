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
	"sync"
	"syscall"
	"time"
)

type engine struct {
	path   string
	args   []string
	attr   *syscall.SysProcAttr
	memory [][]byte // kept until the end
	group  *os.File // kept open: attr has its number
	crowd  int      // goroutines that launch at once
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
	e := &engine{path: os.Args[1], args: os.Args[2:], crowd: 1}
	fmt.Fprintln(answers, "forkless-engine 2", strings.TrimPrefix(strings.Fields(runtime.Version())[0], "go"),
		"ids user-namespace cgroup threads parent")
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
	case "memory", "files", "mappings", "threads", "ids", "user-namespace", "turn":
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
	expected := map[string]int{"ids": 2, "user-namespace": 4, "turn": 3}[word]
	if expected == 0 {
		expected = 1
	}
	if len(numbers) != expected {
		return "", fmt.Errorf("%d numbers expected in %q", expected, request)
	}
	switch word {
	case "memory":
		_, err := e.touch(numbers[0] << 20)
		return "ok", err
	case "files":
		return "ok", openUntil(numbers[0], strings.HasSuffix(request, " cloexec"))
	case "mappings":
		return "ok", e.stripe(numbers[0])
	case "threads":
		e.crowd = numbers[0]
		return "ok", nil
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
func (e *engine) touch(length int) ([]byte, error) {
	memory, err := syscall.Mmap(-1, 0, length, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_PRIVATE|syscall.MAP_ANON|syscall.MAP_NORESERVE)
	if err != nil {
		return nil, err
	}
	// Kernels without huge pages refuse it, which is as good.
	_ = syscall.Madvise(memory, syscall.MADV_NOHUGEPAGE)
	for offset := 0; offset < length; offset += os.Getpagesize() {
		memory[offset] = 1
	}
	e.memory = append(e.memory, memory)
	return memory, nil
}

// stripe has mappings of one touched page: neighbours differ in protection, so the kernel cannot merge them.
func (e *engine) stripe(count int) error {
	page := os.Getpagesize()
	memory, err := e.touch(count * page)
	for at := page; at < len(memory) && err == nil; at += 2 * page {
		err = syscall.Mprotect(memory[at:at+page], syscall.PROT_READ)
	}
	return err
}

// openUntil opens sockets until all numbers below count are taken.
func openUntil(count int, closeOnExec bool) error {
	kind := syscall.SOCK_DGRAM
	if closeOnExec {
		kind |= syscall.SOCK_CLOEXEC
	}
	for {
		fd, err := syscall.Socket(syscall.AF_UNIX, kind, 0)
		if err != nil {
			return fmt.Errorf("cannot open %d files: %w", count, err)
		}
		if fd >= count {
			return syscall.Close(fd)
		}
	}
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

// launches makes one launch after the other, the first of them uncounted and before begin.
func (e *engine) launches(limit time.Duration, fewest, most int, begin func()) ([]sample, error) {
	_, err := e.launch()
	// Others wait for this one, whatever became of it.
	begin()
	samples := []sample{}
	start := time.Now()
	for err == nil && len(samples) < most && (len(samples) < fewest || time.Since(start) < limit) {
		var next sample
		next, err = e.launch()
		samples = append(samples, next)
	}
	return samples, err
}

func (e *engine) turn(limit time.Duration, fewest, most int) (string, error) {
	var cpu time.Duration
	var start time.Time
	begin := func() { cpu, start = cpuTime(), time.Now() }
	runs := make([][]sample, e.crowd)
	errs := make([]error, e.crowd)
	if e.crowd == 1 {
		runs[0], errs[0] = e.launches(limit, fewest, most, begin)
	} else {
		var ready, done sync.WaitGroup
		ready.Add(e.crowd)
		done.Add(e.crowd)
		begun := make(chan struct{})
		for i := range runs {
			go func(i int) {
				defer done.Done()
				runs[i], errs[i] = e.launches(limit, fewest, most, func() { ready.Done(); <-begun })
			}(i)
		}
		ready.Wait()
		begin()
		close(begun)
		done.Wait()
	}
	wall := time.Since(start)
	answer := fmt.Appendf(nil, "done %d %d", wall.Nanoseconds(), (cpuTime() - cpu).Nanoseconds())
	for i, samples := range runs {
		if errs[i] != nil {
			return "", errs[i]
		}
		if i > 0 {
			answer = append(answer, " |"...)
		}
		for _, sample := range samples {
			answer = fmt.Appendf(answer, " %d %d", sample.held, sample.total)
		}
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
