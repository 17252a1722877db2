"""A monitoring server's side of mod_gearman, written without forkless: submits a check and prints its result.

usage: peer.py PORT QUEUE KEY < CHECK. KEY may be empty. AES is that of the openssl command.
"""

import base64
import socket
import struct
import subprocess
import sys


def openssl(key, data, *words):
    key = key[:32].ljust(32, b"\0").hex()
    command = ["openssl", "enc", "-aes-256-ecb", "-nopad", "-K", key, *words]
    return subprocess.run(command, input=data, stdout=subprocess.PIPE, check=True).stdout


def seal(key, text):
    if key:
        text = openssl(key, text + b"\0" * (-len(text) % 16))
    return base64.b64encode(text)


def unseal(key, text):
    text = base64.b64decode(text)
    return openssl(key, text, "-d").rstrip(b"\0") if key else text


class Connection:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))

    def send(self, kind, *words):
        body = b"\0".join(words)
        self.socket.sendall(b"\0REQ" + struct.pack(">II", kind, len(body)) + body)

    def read(self, count):
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            if not more:
                sys.exit("the server has closed the connection")
            data += more
        return data

    def receive(self):
        magic, kind, length = struct.unpack(">4sII", self.read(12))
        assert magic == b"\0RES", magic
        return kind, self.read(length)


def main():
    port, queue, key = int(sys.argv[1]), sys.argv[2].encode(), sys.argv[3].encode()
    check = sys.stdin.buffer.read()
    client = Connection(port)
    client.send(7, queue, b"", seal(key, check))
    while True:
        kind, body = client.receive()
        if kind == 14:
            print("failed")
            return
        if kind == 13:
            break
    if b"result_queue" not in check:
        print("complete")
        return
    results = Connection(port)
    results.send(1, b"check_results")
    while True:
        results.send(9)
        kind, body = results.receive()
        if kind == 11:
            handle, function, payload = body.split(b"\0", 2)
            assert function == b"check_results", function
            sys.stdout.buffer.write(unseal(key, payload))
            results.send(13, handle, b"")
            return
        assert kind == 10, kind
        results.send(4)
        kind, body = results.receive()
        assert kind == 6, kind


main()
