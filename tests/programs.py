"""Python programs in separate processes, without the seconds that importing torch takes.

A server that has imported torch and pinfeed forks for each program. The fork runs it like ``python -c``, and
exits like an interpreter. Children of multiprocessing's forkserver exit by ``os._exit`` instead, so they can't
test the interpreter's exit.
"""

import contextlib
import functools
import gc
import importlib
import multiprocessing
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
import types
from pathlib import Path

PROGRAMS = Path(__file__).parent / "programs"

# The server's environment, without the variables that a test sets for its program.
_ENVIRONMENT = dict(os.environ)


def run_program(name, *arguments, **options):
    """Returns the output of a program in tests/programs, like `run_python`."""
    path = PROGRAMS / f"{name}.py"
    return run_python(path.read_text(encoding="utf-8"), *arguments, path=str(path), **options)


def run_python(code, *arguments, timeout=150, fresh=False, path=None, ranks=1):
    """Returns the output of a Python program; fails, with its stacks, if it fails, crashes or hangs.

    Args:
        code: The program.
        arguments: Its ``sys.argv[1:]``.
        timeout: Seconds after which it counts as hanging.
        fresh: Start a new interpreter, for programs about the import of pinfeed.
        path: The code's file, whose folder it can import from. None: ``python -c``.
        ranks: Run it in this many processes, which have the environment of torchrun.
    """
    server, process = _server(os.getpid())
    assert process.poll() is None, f"the server of programs ended by itself: {process.returncode}"
    reading, writing = os.pipe()
    with open(reading, "rb") as stdout, tempfile.TemporaryFile() as stderr:
        program = (fresh, path, code, arguments, os.getcwd(), dict(os.environ), ranks)
        socket.send_fds(server, [pickle.dumps(program)], [writing, stderr.fileno()])
        os.close(writing)
        pid = int(server.recv(64))
        printed, hung = _read_all(stdout, timeout)
        still_open = hung
        for deadly in (signal.SIGABRT, signal.SIGKILL):  # faulthandler prints stacks on the first
            if still_open:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, deadly)  # also its workers, which hold the pipe too
                more, still_open = _read_all(stdout, 20)
                printed += more
        status = int(server.recv(64))
        stderr.seek(0)
        texts = f"{printed.decode()}\n{stderr.read().decode()}"
    assert not hung, f"still running after {timeout} s\n{texts}"
    assert status == 0, f"exit status {status}\n{texts}"
    return printed.decode()


def _read_all(pipe, seconds):
    """Returns the pipe's bytes until all writers have closed it, and whether the time ran out."""
    parts = []
    deadline = time.monotonic() + seconds
    while select.select([pipe], [], [], max(deadline - time.monotonic(), 0))[0]:
        parts.append(os.read(pipe.fileno(), 1 << 16))
        if not parts[-1]:
            return b"".join(parts), False
    return b"".join(parts), True


@functools.cache
def _server(_pid):
    """Returns a connection to a server of this process; a fork gets its own."""
    connection, remote = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, "-X", "faulthandler", __file__, str(remote.fileno())]
    with remote:
        server = subprocess.Popen(
            command, pass_fds=[remote.fileno()], start_new_session=True, env=_ENVIRONMENT
        )
    return connection, server  # it is not waited for, and exits when the connection closes


def _serve(connection):
    """Forks for each program that arrives; returns the program, in the fork."""
    while True:
        message, outputs, _, _ = socket.recv_fds(connection, 1 << 20, 2)
        if not message:  # the sender has exited
            os._exit(0)
        pid = os.fork()
        if pid == 0:
            connection.close()
            os.setsid()
            for number, descriptor in enumerate(outputs, 1):
                os.dup2(descriptor, number)
                os.close(descriptor)
            return pickle.loads(message)
        for descriptor in outputs:
            os.close(descriptor)
        connection.send(str(pid).encode())
        _, status = os.waitpid(pid, 0)
        connection.send(str(os.waitstatus_to_exitcode(status)).encode())


def _fork_ranks(count):
    """Returns in each rank, with its variables; this process ends with them."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    os.environ |= {"WORLD_SIZE": str(count), "OMP_NUM_THREADS": "1"}  # ranks share CPUs
    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"
    for rank in range(count):
        if os.fork() == 0:
            os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            importlib.import_module("torch").set_num_threads(1)
            return
    # Here, because rank 0 can end while the others still need it.
    port = int(os.environ["MASTER_PORT"])
    store = importlib.import_module("torch.distributed").TCPStore("127.0.0.1", port, None, True)  # noqa: F841
    for _ in range(count):
        if os.wait()[1]:
            os.killpg(0, signal.SIGABRT)  # or the others would wait for the rank that failed
    os._exit(0)


if __name__ == "__main__":
    for module in ("torch.utils.data", "pinfeed"):
        importlib.import_module(module)
    multiprocessing.set_start_method("fork")  # Python 3.14 doesn't do this
    gc.freeze()  # excludes objects from garbage collection at the exit of forks
    fresh, path, code, arguments, folder, environment, ranks = _serve(
        socket.socket(fileno=int(sys.argv[1]))
    )
    os.chdir(folder)
    if fresh:
        program = ["-c", code] if path is None else [path]
        python = [sys.executable, "-X", "faulthandler", *program, *arguments]
        os.execve(sys.executable, python, environment)
    os.environ.clear()
    os.environ.update(environment)
    if ranks > 1:
        _fork_ranks(ranks)
    sys.argv[:] = [path or "-c", *arguments]
    sys.modules["__main__"] = main = types.ModuleType("__main__")
    sys.path[0] = ""
    if path is not None:
        sys.path[:1] = [os.path.dirname(path), os.path.dirname(__file__)]
        main.__file__ = path
    exec(compile(code, path or "<string>", "exec", dont_inherit=True), main.__dict__)
