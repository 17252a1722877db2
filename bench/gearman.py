#!/usr/bin/env python3
"""Measures workers of a Gearman server: checks per second, and CPU per check.

usage: bench/gearman.py FORKLESS [CHECKS] [PROGRAM]

Starts gearmand on a free port of this machine. For each worker it puts CHECKS jobs (default: 10,000) into a queue and starts the
worker then. The time is that from the start of the worker to the end of the last job. CPU is that of the worker and of its jobs,
user and system, and apart from it that of the server. PROGRAM (default: /bin/true) should be static. gearman -w has as many
processes as there are CPUs, each with one job. forkless has one process, with as many jobs, and with four times as many: a worker
asks for a job when it has a free slot, and the other slots bridge the time until the server's answer.

Then a scheduler submits 488 checks per second for five seconds, as a monitoring server does. CPU is measured in the same way. The last
row is a scheduler that forks each check itself, from 256 MiB of memory in pages of 4 KiB.
"""

import base64
import mmap
import os
import resource
import select
import signal
import socket
import struct
import subprocess
import sys
import time


def packet(kind, *words):
    body = b"\0".join(words)
    return b"\0REQ" + struct.pack(">II", kind, len(body)) + body


def read(connection, count):
    data = b""
    while len(data) < count:
        more = connection.recv(count - len(data))
        if not more:
            sys.exit("the server has closed the connection")
        data += more
    return data


def receive(connection):
    kind, length = struct.unpack(">4xII", read(connection, 12))
    return kind, read(connection, length)


def start_server():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["gearmand", "-L", "127.0.0.1", "-l", "stderr", "-p", str(port), "-P", f"/tmp/gearmand-bench-{port}.pid"]
    server = subprocess.Popen(words, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return server, port
        except ConnectionRefusedError:
            time.sleep(0.02)


def cpu_of(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
        words = stat.read().rsplit(")", 1)[1].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def cpu_of_children():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure(name, server, port, queue, payload, workers, count):
    client = socket.create_connection(("127.0.0.1", port))
    client.sendall(b"".join(packet(7, queue, str(n).encode(), payload) for n in range(count)))
    for _ in range(count):
        assert receive(client)[0] == 8, "JOB_CREATED"
    cpu, cpu_server, begun = cpu_of_children(), cpu_of(server.pid), time.monotonic()
    running = [subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) for words in workers]
    ended = 0
    while ended < count:
        kind, _ = receive(client)
        assert kind in (13, 28, 29), f"a job has failed: {kind}"
        ended += kind == 13
    seconds = time.monotonic() - begun
    for worker in running:
        worker.send_signal(signal.SIGTERM)
    for worker in running:
        worker.wait()
    cpu, cpu_server = cpu_of_children() - cpu, cpu_of(server.pid) - cpu_server
    each = 1000 / count
    print(f"{name:32} {count / seconds:8.0f}/s  {cpu * each:6.3f} ms CPU a check, server {cpu_server * each:6.3f} ms", flush=True)


RATE = 488
SECONDS = 5


def submit_paced(connection, queue, payload):
    """Submits checks at their times, and returns when all have ended."""
    count, sent, ended, begun, buffer = RATE * SECONDS, 0, 0, time.monotonic(), b""
    while ended < count:
        due = min(count, int((time.monotonic() - begun) * RATE) + 1)
        if sent < due:
            connection.sendall(b"".join(packet(7, queue, b"%d" % n, payload) for n in range(sent, due)))
            sent = due
        wait = begun + sent / RATE - time.monotonic() if sent < count else 60
        if not select.select([connection], [], [], max(0, wait))[0]:
            continue
        buffer += connection.recv(1 << 16)
        while len(buffer) >= 12 and len(buffer) >= 12 + struct.unpack(">8xI", buffer[:12])[0]:
            kind, length = struct.unpack(">4xII", buffer[:12])
            buffer = buffer[12 + length :]
            assert kind in (8, 13, 28, 29), f"a job has failed: {kind}"
            ended += kind == 13
    return count / (time.monotonic() - begun)


def report_paced(name, rate, cpu, cpu_server, count):
    each = 1000 / count
    print(f"{name:32} {rate:8.0f}/s  {cpu * each:6.3f} ms CPU a check, server {cpu_server * each:6.3f} ms, {cpu / SECONDS:6.1%} of a CPU", flush=True)


def measure_paced(name, server, port, queue, payload, workers):
    client = socket.create_connection(("127.0.0.1", port))
    cpu, cpu_server = cpu_of_children(), cpu_of(server.pid)
    running = [subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) for words in workers]
    rate = submit_paced(client, queue, payload)
    for worker in running:
        worker.send_signal(signal.SIGTERM)
    for worker in running:
        worker.wait()
    report_paced(name, rate, cpu_of_children() - cpu, cpu_of(server.pid) - cpu_server, RATE * SECONDS)


def measure_forking(program):
    """A scheduler that forks each check itself: its own CPU counts."""
    memory = mmap.mmap(-1, 256 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_NOHUGEPAGE)
    for at in range(0, len(memory), mmap.PAGESIZE):
        memory[at] = 1

    def cpu():
        own = resource.getrusage(resource.RUSAGE_SELF)
        return cpu_of_children() + own.ru_utime + own.ru_stime

    before, begun, count = cpu(), time.monotonic(), 0
    while (passed := time.monotonic() - begun) < SECONDS:
        if count >= passed * RATE:
            time.sleep(begun + (count + 1) / RATE - time.monotonic() if begun + (count + 1) / RATE > time.monotonic() else 0)
            continue
        pid = os.fork()
        if pid == 0:
            try:
                os.execv(program, [program])
            finally:
                os._exit(127)
        os.waitpid(pid, 0)
        count += 1
    report_paced("fork by the scheduler", count / SECONDS, cpu() - before, 0, count)
    memory.close()


def main():
    forkless = sys.argv[1]
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 10_000
    program = sys.argv[3] if len(sys.argv) > 3 else "/bin/true"
    cpus = len(os.sched_getaffinity(0))
    server, port = start_server()
    try:
        worker = [forkless, "gearman-worker", f"127.0.0.1:{port}"]
        ours = [*worker, "-j", str(cpus)]
        more = [*worker, "-j", str(4 * cpus)]
        stock = ["gearman", "-w", "-h", "127.0.0.1", "-p", str(port), "-f"]
        check = f"type=service\nresult_queue=results\nhost_name=h\nservice_description=s\ntimeout=60\ncommand_line={program}\n\n\n"
        sealed = base64.b64encode(check.encode())
        for _ in range(3):
            measure("gearman -w", server, port, b"stock", b"", [[*stock, "stock", "--", program]] * cpus, count)
            measure("forkless, lines", server, port, b"line", program.encode(), [[*ours, "--function", "line"]], count)
            measure(f"forkless, lines, -j{4 * cpus}", server, port, b"line", program.encode(), [[*more, "--function", "line"]], count)
            measure("forkless, checks", server, port, b"check", sealed, [[*ours, "--checks=check"]], count)
            measure(f"forkless, checks, -j{4 * cpus}", server, port, b"check", sealed, [[*more, "--checks=check"]], count)
        print(f"{RATE} checks per second")
        measure_paced("gearman -w", server, port, b"stock", b"", [[*stock, "stock", "--", program]] * cpus)
        measure_paced(f"forkless, checks, -j{4 * cpus}", server, port, b"check", sealed, [[*more, "--checks=check"]])
        measure_forking(program)
    finally:
        server.terminate()
        server.wait()


main()
