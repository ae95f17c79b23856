"""One ``mizzen`` process: how is it started, found, and stopped?

The process gets a pipe as its standard input and stops when the pipe is closed, so it never outlives the process that
started it, however that ends. Everything it writes is in a temporary directory, which is removed by ``stop``.
"""

import base64
import http.client
import json
import os
import re
import secrets
import selectors
import shutil
import ssl
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Mapping, Optional, Sequence, Type, Union
from urllib.parse import urlsplit

# The end of the log that an error shows.
_LOG_TAIL_BYTES = 4000


class StartError(RuntimeError):
    """The cluster ended or was late before it was ready. The message has the end of its log."""


class ApiError(RuntimeError):
    """The API server answered a request with an error."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        #: The HTTP status code.
        self.status = status
        #: The reason of the Status, such as ``NotFound``.
        self.reason = reason


def binary_path() -> str:
    """The path of the binary: ``MIZZEN_BIN``, the one in this package, or the one on the ``PATH``."""
    chosen = os.environ.get("MIZZEN_BIN")
    if chosen:
        return chosen
    packaged = Path(__file__).parent / "bin" / "mizzen"
    if packaged.is_file():
        return str(packaged)
    found = shutil.which("mizzen")
    if found is None:
        raise FileNotFoundError("no mizzen binary: neither MIZZEN_BIN, nor in this package, nor on the PATH")
    return found


class Cluster:
    """A cluster in memory, on a free port of the loopback interface.

    It is a context manager; ``start`` and ``stop`` do the same. The options:

    * ``nodes``: how many simulated nodes run, 1 by default. All controllers and the scheduler run, too.
    * ``loops``: run the API server with these components only: ``gc``, controllers by upstream's names
      (``namespace``, ``deployment``), ``scheduler``, ``nodes`` or ``nodes=N``. An empty list runs the API server alone.
    * ``args``: further arguments of ``mizzen up`` or ``mizzen apiserver``.
    * ``env``: environment variables besides those of this process, such as ``MIZZEN_LOG``.
    * ``binary``: the binary; ``binary_path()`` by default.
    * ``timeout``: how many seconds it may take until it is ready, or until it has stopped.
    """

    #: The URL of the API server, ``https://127.0.0.1:PORT``.
    url: str
    #: The path of the administrator's kubeconfig.
    kubeconfig: str
    #: The path of the certificate authority of the server (PEM).
    ca_file: str
    #: A bearer token of an administrator.
    token: str
    #: Seconds from exec until it was ready.
    ready_seconds: float

    def __init__(
        self,
        *,
        nodes: Optional[int] = None,
        loops: Optional[Sequence[str]] = None,
        args: Sequence[str] = (),
        env: Optional[Mapping[str, str]] = None,
        binary: Union[str, "os.PathLike[str]", None] = None,
        timeout: float = 30.0,
    ) -> None:
        if isinstance(loops, str):
            raise TypeError("loops is a list of names, not a string")
        if nodes is not None and loops is not None:
            raise ValueError("nodes are of the whole cluster; among loops they are 'nodes=N'")
        if loops is None:
            self._command = ["up", "--nodes", str(1 if nodes is None else nodes)]
        else:
            self._command = ["apiserver"] + (["--loops", ",".join(loops)] if loops else [])
        self._args = list(args)
        self._env = dict(env or {})
        self._binary = binary
        self._timeout = timeout
        self._process: Optional["subprocess.Popen[bytes]"] = None
        self._directory: Optional["tempfile.TemporaryDirectory[str]"] = None

    def start(self) -> "Cluster":
        """Starts it and waits until it is ready."""
        if self._process is not None:
            raise RuntimeError("the cluster runs already")
        binary = os.fspath(self._binary or binary_path())
        self._directory = tempfile.TemporaryDirectory(prefix="mizzen-")
        directory = Path(self._directory.name)
        self.kubeconfig = str(directory / "kubeconfig")
        self.ca_file = str(directory / "ca.crt")
        self.token = secrets.token_hex(16)
        tokens = directory / "tokens.csv"
        tokens.touch(mode=0o600)
        tokens.write_text(f"{self.token},mizzen-test,mizzen-test,system:masters\n")
        own = ["--in-memory", "--port", "0", "--stop-with-stdin"]
        own += ["--kubeconfig", self.kubeconfig, "--token-auth-file", str(tokens)]
        try:
            with open(directory / "log", "wb") as log:
                began = time.perf_counter()
                self._process = subprocess.Popen(
                    [binary, *self._command, *own, *self._args],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    cwd=directory,
                    env={**os.environ, **self._env},
                )
            line = self._ready_line(self._process, began + self._timeout)
            self.ready_seconds = time.perf_counter() - began
            self.url = line.split(" at ", 1)[1].split(" ", 1)[0]
            text = Path(self.kubeconfig).read_text()
            authority = re.search(r'certificate-authority-data"?: *"?([A-Za-z0-9+/=]+)', text)
            if authority is None:
                raise StartError(f"no certificate authority in {self.kubeconfig}")
            Path(self.ca_file).write_bytes(base64.b64decode(authority.group(1)))
        except BaseException:
            self.stop()
            raise
        return self

    def _ready_line(self, process: "subprocess.Popen[bytes]", deadline: float) -> str:
        """The line that the process prints when it is ready."""
        assert process.stdout is not None
        line = b""
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                if not selector.select(max(0.0, deadline - time.perf_counter())):
                    raise StartError(f"not ready after {self._timeout} s\n{self.log_tail()}")
                chunk = os.read(process.stdout.fileno(), 65536)
                if not chunk:
                    code = process.wait()
                    raise StartError(f"exit code {code} before it was ready\n{self.log_tail()}")
                line += chunk
        return line.decode()

    def stop(self) -> None:
        """Stops it with SIGTERM, or SIGKILL after the timeout, and removes its files. It may be stopped already."""
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            try:
                process.wait(self._timeout)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
        directory, self._directory = self._directory, None
        if directory is not None:
            directory.cleanup()

    def __enter__(self) -> "Cluster":
        return self.start()

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """The id of the process."""
        if self._process is None:
            raise RuntimeError("the cluster does not run")
        return self._process.pid

    def log(self) -> str:
        """What it has logged; ``env={"MIZZEN_LOG": "debug"}`` logs more. Empty once it is stopped."""
        if self._directory is None:
            return ""
        return (Path(self._directory.name) / "log").read_text(errors="replace")

    def log_tail(self) -> str:
        """The end of the log."""
        return self.log()[-_LOG_TAIL_BYTES:]

    def request(
        self, method: str, path: str, body: Any = None, *, content_type: str = "application/json"
    ) -> Any:
        """Sends a request of an administrator; returns the decoded JSON. For what a test needs without a client library."""
        context = ssl.create_default_context(cafile=self.ca_file)
        address = urlsplit(self.url)
        connection = http.client.HTTPSConnection(
            address.hostname or "", address.port, context=context, timeout=self._timeout
        )
        headers = {"Authorization": f"Bearer {self.token}", "Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = content_type
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            text = response.read()
        finally:
            connection.close()
        is_json = (response.getheader("Content-Type") or "").startswith("application/json")
        answer = json.loads(text) if is_json else text.decode()
        if response.status >= 400:
            status = answer if isinstance(answer, dict) else {}
            raise ApiError(response.status, status.get("reason", ""), status.get("message", str(answer)))
        return answer

    def create_namespace(self, prefix: str = "test") -> str:
        """Creates a namespace with a unique name. Returns the name."""
        metadata = {"generateName": f"{prefix}-"}
        return str(self.request("POST", "/api/v1/namespaces", {"metadata": metadata})["metadata"]["name"])

    def delete_namespace(self, name: str) -> None:
        """Deletes a namespace; the namespace controller, if it runs, deletes its objects."""
        self.request("DELETE", f"/api/v1/namespaces/{name}")
