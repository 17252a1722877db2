#!/usr/bin/env python3
"""Measures workers of a Gearman server: checks per second, and CPU per check.

usage: bench/gearman.py FORKLESS [CHECKS] [PROGRAM]

Starts gearmand on a free port of this machine. For each worker it puts CHECKS jobs (default: 10,000) into a queue and starts the
worker then. The time is that from the start of the worker to the end of the last job. CPU is that of the worker and of its jobs,
user and system, and apart from it that of the server. PROGRAM (default: /bin/true) should be static. Each worker runs as many jobs
at once as there are CPUs: gearman -w by as many processes, forkless in one.
"""

import base64
import os
import resource
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


def main():
    forkless = sys.argv[1]
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 10_000
    program = sys.argv[3] if len(sys.argv) > 3 else "/bin/true"
    cpus = len(os.sched_getaffinity(0))
    server, port = start_server()
    try:
        ours = [forkless, "gearman-worker", f"127.0.0.1:{port}", "-j", str(cpus)]
        stock = ["gearman", "-w", "-h", "127.0.0.1", "-p", str(port), "-f"]
        check = f"type=service\nresult_queue=results\nhost_name=h\nservice_description=s\ntimeout=60\ncommand_line={program}\n\n\n"
        for turn in range(3):
            measure("gearman -w", server, port, b"stock", b"", [[*stock, "stock", "--", program]] * cpus, count)
            measure("forkless, lines", server, port, b"line", program.encode(), [[*ours, "--function", "line"]], count)
            sealed = base64.b64encode(check.encode())
            measure("forkless, checks", server, port, b"check", sealed, [[*ours, "--checks=check"]], count)
    finally:
        server.terminate()
        server.wait()


main()
