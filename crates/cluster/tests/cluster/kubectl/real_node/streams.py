"""exec, attach, port-forward and logs of a pod with the official client: `streams.py POD [real]`."""

import json
import sys

from kubernetes import client, config
from kubernetes.stream import portforward, stream

LIMIT = 30
STDIN, RESIZE = 0, 4
NAMESPACE = "default"
pod, is_real = sys.argv[1], "real" in sys.argv[2:]

config.load_kube_config()
core = client.CoreV1Api()


def execute(*command, **options):
    """Runs a command; its input is open."""
    options = {"stdin": True, "stdout": True, "stderr": True, "tty": False, "_preload_content": False, **options}
    return stream(core.connect_get_namespaced_pod_exec, pod, NAMESPACE, command=list(command), **options)


def line_of(socket, wanted):
    """Reads lines until one is wanted: a terminal has prompts and what was typed, too."""
    while (line := socket.readline_stdout(timeout=LIMIT)) != "":
        if line.strip() == wanted:
            return
    raise AssertionError(f"no line {wanted!r}")


def runs_commands():
    said = stream(core.connect_get_namespaced_pod_exec, pod, NAMESPACE, command=["echo", "hello"], stdout=True)
    assert said == "hello\n", said
    shell = execute("sh")
    shell.write_stdin("echo out\n")
    assert shell.readline_stdout(timeout=LIMIT) == "out"
    shell.write_stdin("echo err >&2\n")
    assert shell.readline_stderr(timeout=LIMIT) == "err"
    shell.write_stdin("exit 3\n")
    shell.run_forever(timeout=LIMIT)
    assert shell.returncode == 3, shell.returncode

    data = bytes(range(256)) * 256
    copy = execute("cat", binary=True)
    copy.write_stdin(data)
    copy.close_channel(STDIN)
    copy.run_forever(timeout=LIMIT)
    assert copy.returncode == 0
    assert copy.read_all() == data

    if is_real:
        # One message of 5 MiB.
        count = execute("wc", "-c", binary=True)
        count.write_stdin(data * 80)
        count.close_channel(STDIN)
        count.run_forever(timeout=LIMIT)
        assert int(count.read_all()) == 80 * len(data)


def has_a_terminal():
    terminal = execute("sh", tty=True)
    terminal.write_channel(RESIZE, json.dumps({"Height": 40, "Width": 100}))
    terminal.write_stdin("echo answer\n")
    line_of(terminal, "answer")
    if is_real:
        terminal.write_stdin("stty size\n")
        line_of(terminal, "40 100")
    terminal.write_stdin("exit 4\n")
    terminal.run_forever(timeout=LIMIT)
    assert terminal.returncode == 4, terminal.returncode


def attaches():
    options = {"stdin": True, "stdout": True, "stderr": True, "tty": False, "_preload_content": False}
    attached = stream(core.connect_get_namespaced_pod_attach, pod, NAMESPACE, **options)
    attached.write_stdin("from python\n")
    assert attached.readline_stdout(timeout=LIMIT) == "from python"
    attached.close()
    log = core.read_namespaced_pod_log(pod, NAMESPACE, follow=True, _preload_content=False)
    assert any(b"from python" in line for line in log.stream())
    log.release_conn()


def forwards_ports():
    forwarded = portforward(core.connect_get_namespaced_pod_portforward, pod, NAMESPACE, ports="8080,9999")
    socket = forwarded.socket(8080)
    socket.setblocking(True)
    socket.settimeout(LIMIT)
    socket.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    answer = b""
    while not answer.endswith(b"page"):
        piece = socket.recv(1024)
        assert piece, answer
        answer += piece
    assert answer.startswith(b"HTTP/1.1 200 "), answer
    assert forwarded.error(8080) is None, forwarded.error(8080)
    closed = forwarded.socket(9999)
    closed.settimeout(LIMIT)
    assert closed.recv(1024) == b""
    assert "connection refused" in forwarded.error(9999), forwarded.error(9999)


for scenario in [runs_commands, has_a_terminal, attaches, forwards_ports]:
    scenario()
    print(f"{pod}: {scenario.__name__}", flush=True)
