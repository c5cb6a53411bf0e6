"""Confinement is tried from inside: a server that has imported torch forks, and the confined fork tries."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import mmap
import os
import resource
import select
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kbench.errors import InternalError
from kbench.worker import landlock
from kbench.worker.confine import Policy, confine

# Far above what any probe takes; only a hang gets there.
DEADLINE_S = 120

libc = ctypes.CDLL(None, use_errno=True)


# What a confined process tries. Each probe answers with plain data; an OSError is answered by its name.
PROBES: dict[str, Callable[..., object]] = {}


def probe(function: Callable[..., object]) -> Callable[..., object]:
    PROBES[function.__name__] = function
    return function


def checked(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), "refused")
    return result


@probe
def read(path: str) -> str:
    return Path(path).read_text()


@probe
def write(path: str) -> str:
    with open(path, "w") as file:
        file.write("mine")
    return Path(path).read_text()


@probe
def append(path: str) -> None:
    with open(path, "a") as file:
        file.write("x")


@probe
def listing(path: str) -> list[str]:
    return os.listdir(path)


@probe
def remove(path: str) -> None:
    os.unlink(path)


@probe
def make_folder(path: str) -> None:
    os.mkdir(path)


@probe
def rename(source: str, target: str) -> None:
    Path(source).write_text("mine")
    os.rename(source, target)


@probe
def move_out(source: str, target: str) -> None:
    os.rename(source, target)


@probe
def hard_link(source: str, target: str) -> None:
    os.link(source, target)


@probe
def soft_link(source: str, target: str) -> None:
    os.symlink(source, target)


@probe
def read_through_link(path: str) -> str:
    os.symlink(path, "link")
    return Path("link").read_text()


@probe
def truncate(path: str) -> None:
    os.truncate(path, 0)


@probe
def cut_by_opening(path: str) -> None:
    os.close(os.open(path, os.O_RDONLY | os.O_TRUNC))


@probe
def set_mode(path: str, mode: int) -> int:
    os.chmod(path, mode)
    return stat.S_IMODE(os.stat(path).st_mode)


@probe
def set_attribute(path: str) -> None:
    os.setxattr(path, "user.kbench", b"x")


@probe
def set_times(path: str) -> None:
    os.utime(path, (0, 0))
    os.utime(path)


@probe
def set_flags(path: str) -> None:
    with open(path) as file:
        fcntl.ioctl(file, 0x40086602, struct.pack("l", 0x40))


@probe
def take_lease(path: str) -> None:
    with open(path) as file:
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)


@probe
def watch(path: str) -> None:
    checked(libc.inotify_add_watch(checked(libc.inotify_init1(0)), path.encode(), 0x100))


@probe
def type_into_the_terminal() -> None:
    fcntl.ioctl(0, 0x5412, b"x")


@probe
def copy_with_times() -> int:
    shutil.copy2("own", "copy")
    return os.path.getsize("copy")


@probe
def set_owner(path: str) -> None:
    os.chown(path, -1, -1)


@probe
def open_socket(family: int, kind: int) -> None:
    socket.socket(family, kind).close()


@probe
def connect(address: str, kind: int = socket.SOCK_STREAM) -> None:
    with socket.socket(socket.AF_UNIX, kind) as sock:
        sock.connect(address.replace("@", "\0"))


@probe
def listen(address: str) -> None:
    """What CUDA does on start-up."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.bind(address.replace("@", "\0"))
        sock.listen()


@probe
def signal_parent(number: int) -> None:
    os.kill(os.getppid(), number)


@probe
def signal_by_descriptor() -> None:
    signal.pidfd_send_signal(os.pidfd_open(os.getppid()), 0)


@probe
def signal_everybody() -> None:
    os.kill(-1, 0)


@probe
def signal_itself() -> str:
    received: list[int] = []
    signal.signal(signal.SIGUSR1, lambda number, _: received.append(number))
    os.kill(os.getpid(), signal.SIGUSR1)
    signal.raise_signal(signal.SIGUSR1)
    return f"{len(received)} signals"


@probe
def attach() -> None:
    checked(libc.ptrace(16, os.getppid(), 0, 0))


@probe
def parents_memory() -> None:
    os.close(os.open(f"/proc/{os.getppid()}/mem", os.O_RDWR))


@probe
def parents_environment() -> None:
    Path(f"/proc/{os.getppid()}/environ").read_bytes()


@probe
def parents_descriptors() -> None:
    os.close(os.open(f"/proc/{os.getppid()}/fd/2", os.O_WRONLY))


@probe
def limit_parent() -> None:
    resource.prlimit(os.getppid(), resource.RLIMIT_CPU, (1, 1))


@probe
def pin_parent() -> None:
    os.sched_setaffinity(os.getppid(), {0})


@probe
def slow_everybody() -> None:
    os.setpriority(os.PRIO_USER, 0, 19)


@probe
def call(number: int, *args: int) -> None:
    checked(libc.syscall(number, *args))


@probe
def new_user_namespace() -> None:
    checked(libc.unshare(0x10000000))


@probe
def old_call() -> None:
    """Asks for the process's id by the way of 32-bit programs, which no rule is written for."""
    code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3")
    ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))()


@probe
def capabilities() -> list[str]:
    own = Path("/proc/self/status").read_text()
    child = subprocess.run(["cat", "/proc/self/status"], capture_output=True, text=True, check=True).stdout
    return [line.split()[1] for text in (own, child) for line in text.splitlines() if line.startswith("CapEff")]


@probe
def limits() -> list[int]:
    return [resource.getrlimit(which)[1] for which in (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE, resource.RLIMIT_DATA)]


@probe
def write_much(n_bytes: int) -> None:
    Path("big").write_bytes(bytes(n_bytes))


@probe
def allocate(n_bytes: int) -> str:
    import torch

    try:
        torch.zeros(n_bytes, dtype=torch.uint8)
    except RuntimeError as error:
        return str(error)
    return "done"


@probe
def daily_life() -> dict[str, object]:
    import wave

    with tempfile.NamedTemporaryFile() as file:
        temporary = file.name
    joined: list[int] = []
    thread = threading.Thread(target=joined.append, args=(1,))
    thread.start()
    thread.join()
    copy = shutil.copy(sys.executable, "copied")
    return {
        "folder": os.getcwd(),
        "temporary": temporary,
        "home": os.path.expanduser("~"),
        "processors": os.cpu_count(),
        "threads": joined,
        "module": wave.__name__,
        "maps": "torch" in Path("/proc/self/maps").read_text(),
        "copied": os.path.getsize(copy) > 0,
        "null": subprocess.run(["sh", "-c", "echo a > /dev/null && echo b"], check=True, capture_output=True, text=True).stdout,
    }


@probe
def multiply() -> list[Any]:
    import torch

    torch.set_num_threads(2)
    a = torch.randn(300, 300)
    threads = len(os.listdir("/proc/self/task"))
    return [torch.allclose(a @ a, (a.double() @ a.double()).float(), atol=1e-3), threads > 0]


@probe
def compile_and_run() -> int:
    Path("answer.c").write_text("int answer(void) { return 42; }\n")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", "answer.so", "answer.c"], check=True)
    Path("main.c").write_text("int main(void) { return 7; }\n")
    subprocess.run(["gcc", "-o", "main", "main.c"], check=True)
    return int(ctypes.CDLL("./answer.so").answer()) + subprocess.run(["./main"], check=False).returncode


@probe
def load(path: str) -> int:
    return int(ctypes.CDLL(path).answer())


@probe
def build_with_torch() -> bool:
    """The whole way of `load_inline` but for torch's headers, which take half a minute."""
    from torch.utils import cpp_extension

    source = 'extern "C" int answer(void) { return 42; }'
    cpp_extension.load_inline(  # type: ignore[no-untyped-call]
        "answer", source, is_python_module=False, no_implicit_headers=True
    )
    return list(Path("torch_extensions").rglob("answer.so")) != []


@probe
def pool_of_processes() -> list[int]:
    with ProcessPoolExecutor(2) as pool:
        return list(pool.map(abs, [-1, 2, -3]))


@probe
def torch_compile() -> bool:
    import torch

    x = torch.arange(2000.0)
    # Compiles one file instead of seven: none to try the machine's vector units, no header in advance.
    compiled = torch.compile(lambda tensor: torch.relu(tensor) * 2 + 1, options={"cpp_cache_precompile_headers": False})
    return torch.equal(compiled(x), torch.relu(x) * 2 + 1)


# The server: forks one confined process for each request.


def serve() -> None:
    import torch  # noqa: F401 - every fork finds it loaded, as in a worker

    for line in sys.stdin:
        request = json.loads(line)
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reader)
            _try(request, writer)
        os.close(writer)
        print(json.dumps(_answer(pid, reader)), flush=True)


def _try(request: dict[str, Any], writer: int) -> None:
    try:
        os.environ.update(request["environment"])
        confinement = confine(Policy.from_json(request["policy"]), newest_abi=request["newest_abi"])
        answer: dict[str, Any] = {"sandbox": str(confinement), "error": "", "result": None}
        try:
            answer["result"] = PROBES[request["probe"]](*request["args"])
        except OSError as error:
            answer["error"] = errno.errorcode.get(error.errno or 0, str(error))
        os.write(writer, json.dumps(answer).encode())
    except BaseException as error:  # noqa: BLE001 - told to the test
        os.write(writer, json.dumps({"sandbox": "", "error": repr(error), "result": None}).encode())
    finally:
        os._exit(0)


def _answer(pid: int, reader: int) -> dict[str, Any]:
    """What the fork said, and the signal that ended it, if one did."""
    ended = os.pidfd_open(pid)
    if not select.select([ended], [], [], DEADLINE_S)[0]:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    os.close(ended)
    with open(reader) as file:
        text = file.read()
    answer: dict[str, Any] = json.loads(text) if text else {"sandbox": "", "error": "", "result": None}
    return {**answer, "signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0}


@dataclass
class Answer:
    sandbox: str
    error: str
    result: Any
    signal: int


@dataclass
class Land:
    """A project, a home and a scratch folder, and a server that forks confined processes."""

    root: Path
    server: subprocess.Popen[str]

    @property
    def scratch(self) -> Path:
        return self.root / "scratch"

    def attempt(
        self,
        name: str,
        *args: object,
        newest_abi: int = landlock.NEWEST_ABI,
        environment: dict[str, str] | None = None,
        **fields: object,
    ) -> Answer:
        policy = {
            "scratch": str(self.scratch),
            "readable": [str(self.root / "project/candidates/task/mine.py"), str(self.root / "build/own")],
            "hidden": [str(self.root / "project")],
            **fields,
        }
        request = {
            "probe": name,
            "args": args,
            "policy": policy,
            "newest_abi": newest_abi,
            "environment": {"HOME": str(self.root / "home"), **(environment or {})},
        }
        assert self.server.stdin is not None
        assert self.server.stdout is not None
        self.server.stdin.write(json.dumps(request) + "\n")
        self.server.stdin.flush()
        return Answer(**json.loads(self.server.stdout.readline()))


@pytest.fixture(scope="module")
def server() -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, __file__]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd="/") as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


@pytest.fixture
def land(server: subprocess.Popen[str], tmp_path: Path) -> Land:
    if landlock.abi()[0] < landlock.OLDEST_ABI:
        pytest.skip("this kernel has no Landlock")
    for name in (
        "project/results/verdicts.csv",
        "project/references/task.py",
        "project/candidates/task/mine.py",
        "project/candidates/task/other.py",
        "build/own/kernel.so",
        "build/other/kernel.so",
        "home/secret",
        "scratch/own",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("here before")
    return Land(tmp_path, server)


FORBIDDEN = (
    "project/results/verdicts.csv",
    "project/references/task.py",
    "project/candidates/task/other.py",
    "build/other/kernel.so",
    "home/secret",
)


def test_the_record_says_what_is_in_force(land: Land) -> None:
    version = min(landlock.abi()[0], landlock.NEWEST_ABI)
    assert land.attempt("limits").sandbox == f"landlock:{version}+seccomp"


@pytest.mark.parametrize("path", FORBIDDEN)
@pytest.mark.parametrize("name", ["read", "read_through_link", "write", "append", "remove", "truncate", "cut_by_opening"])
def test_what_is_not_its_own_is_out_of_reach(land: Land, name: str, path: str) -> None:
    assert land.attempt(name, str(land.root / path)).error == "EACCES"
    assert (land.root / path).read_text() == "here before"


@pytest.mark.parametrize("path", ["project/results/new", "build/own/new", "build/other/new", "home/new", "new"])
@pytest.mark.parametrize("name", ["write", "make_folder"])
def test_nothing_new_appears_outside_the_scratch_folder(land: Land, name: str, path: str) -> None:
    assert land.attempt(name, str(land.root / path)).error == "EACCES"
    assert not (land.root / path).exists()


def test_a_file_of_its_own_may_be_read_but_not_changed(land: Land) -> None:
    mine = str(land.root / "project/candidates/task/mine.py")

    assert land.attempt("read", mine).result == "here before"
    for name in ("append", "truncate", "cut_by_opening", "remove"):
        assert land.attempt(name, mine).error == "EACCES", name


def test_folders_of_others_cannot_be_listed(land: Land) -> None:
    for path in (land.root / "project/results", land.root / "home", land.root, Path("/dev/shm")):
        assert land.attempt("listing", str(path)).error == "EACCES", path


@pytest.mark.parametrize("name", ["rename", "soft_link"])
def test_nothing_of_its_own_moves_into_a_folder_of_others(land: Land, name: str) -> None:
    attempt = land.attempt(name, "own", str(land.root / "project/results/new"))
    assert attempt.error in ("EACCES", "EXDEV")
    assert not (land.root / "project/results/new").is_symlink()
    assert not (land.root / "project/results/new").exists()


@pytest.mark.parametrize("name", ["hard_link", "move_out"])
def test_nothing_of_others_moves_into_the_scratch_folder(land: Land, name: str) -> None:
    assert land.attempt(name, str(land.root / "home/secret"), "mine").error in ("EACCES", "EXDEV")
    assert not (land.scratch / "mine").exists()
    assert (land.root / "home/secret").exists()


def test_the_scratch_folder_is_free(land: Land) -> None:
    (land.scratch / "folder").mkdir()

    assert land.attempt("write", "new").result == "mine"
    assert land.attempt("rename", "here", "folder/there").error == ""
    assert (land.scratch / "folder/there").read_text() == "mine"
    assert land.attempt("remove", "own").error == ""


def test_a_writable_folder_besides_is_free_too(land: Land) -> None:
    entry = land.root / "build/own"

    assert land.attempt("write", str(entry / "new"), writable=[str(entry)]).result == "mine"


def test_a_library_that_a_stranger_names_is_readable_but_for_what_is_hidden_or_private(land: Land) -> None:
    for name in ("libraries/include/all.h", "libraries/project/results.csv", "home/.ssh/key", "home/include/all.h"):
        (land.root / name).parent.mkdir(parents=True, exist_ok=True)
        (land.root / name).write_text("here before")
    hidden = [str(land.root / "libraries/project"), str(land.root / "project")]

    def attempt(path: str, *libraries: str) -> Answer:
        return land.attempt("read", str(land.root / path), hidden=hidden, libraries=[str(land.root / name) for name in libraries])

    assert attempt("libraries/include/all.h", "libraries").result == "here before"
    assert attempt("home/include/all.h", "home/include").result == "here before"
    assert attempt("libraries/project/results.csv", "libraries").error == "EACCES"
    assert attempt("project/references/task.py", "project/references").error == "EACCES"
    assert attempt("home/.ssh/key", "home/.ssh").error == "EACCES"
    assert attempt("home/secret", "home", ".").error == "EACCES"


def test_a_project_inside_a_readable_folder_stays_hidden(land: Land) -> None:
    """A project may well lie in /opt, or in a folder of libraries."""
    packages = land.root / "packages"
    (packages / "project").mkdir(parents=True)
    (packages / "module.py").write_text("here before")
    (packages / "project/results.csv").write_text("here before")
    (packages / "link").symlink_to("project")

    def attempt(path: str) -> Answer:
        hidden, environment = ([str(packages / "project")], {"LD_LIBRARY_PATH": str(packages)})
        return land.attempt("read", str(packages / path), hidden=hidden, environment=environment)

    assert attempt("module.py").result == "here before"
    assert attempt("project/results.csv").error == "EACCES"
    assert attempt("link/results.csv").error == "EACCES"


@pytest.mark.parametrize("mode", [0o000, 0o600, 0o777, 0o4755])
def test_modes_of_files_stay_usable(land: Land, mode: int) -> None:
    """Landlock leaves modes to the owner, who could lock everybody out of the results by one call."""
    for path in (land.root / "project/results", land.root / "home/secret"):
        before = stat.S_IMODE(path.stat().st_mode)
        land.attempt("set_mode", str(path), mode)
        assert stat.S_IMODE(path.stat().st_mode) == before


def test_a_program_may_be_made_executable(land: Land) -> None:
    assert land.attempt("set_mode", "own", 0o755).result == 0o755


def test_attributes_and_owners_of_files_stay(land: Land) -> None:
    assert land.attempt("set_attribute", str(land.scratch / "own")).error == "ENOTSUP"
    assert land.attempt("set_owner", str(land.scratch / "own")).error == "EPERM"


@pytest.mark.parametrize("path", ["project/results", "project/results/verdicts.csv", "project/candidates/task/mine.py"])
def test_times_of_files_stay(land: Land, path: str) -> None:
    """What is newest decides what a cache keeps and what a build makes again."""
    before = (land.root / path).stat().st_mtime_ns

    land.attempt("set_times", str(land.root / path))

    assert (land.root / path).stat().st_mtime_ns == before


def test_to_copy_a_file_with_its_times_is_no_error(land: Land) -> None:
    assert land.attempt("copy_with_times").result == len("here before")


@pytest.mark.parametrize("name", ["set_flags", "take_lease"])
def test_a_file_that_may_be_read_cannot_be_marked_or_held_up(land: Land, name: str) -> None:
    assert land.attempt(name, str(land.root / "project/candidates/task/mine.py")).error == "EPERM"


def test_no_folder_can_be_watched(land: Land) -> None:
    for path in (land.root / "project/results", land.root / "project/candidates/task", Path("/usr")):
        assert land.attempt("watch", str(path)).error == "EPERM", path


def test_nothing_can_be_typed_into_a_terminal(land: Land) -> None:
    assert land.attempt("type_into_the_terminal").error == "EPERM"


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK, socket.AF_PACKET, socket.AF_VSOCK])
@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW])
def test_there_is_no_network(land: Land, family: int, kind: int) -> None:
    assert land.attempt("open_socket", family, kind).error == "EACCES"


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET])
@pytest.mark.parametrize("place", ["abstract", "folder"])
def test_sockets_of_others_cannot_be_reached(land: Land, kind: int, place: str) -> None:
    """A daemon behind a Unix socket would do what the candidate itself may not."""
    address = f"@{land.root}" if place == "abstract" else str(land.root / "home/socket")
    with socket.socket(socket.AF_UNIX, kind) as daemon:
        daemon.bind(address.replace("@", "\0"))
        if kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
            daemon.listen()
        assert land.attempt("connect", address, kind).error in ("ECONNREFUSED", "EACCES", "EPERM")


def test_cuda_may_listen_on_its_abstract_socket(land: Land) -> None:
    assert land.attempt("listen", f"@{land.root}").error == ""


@pytest.mark.parametrize("newest_abi", [5, landlock.NEWEST_ABI])
@pytest.mark.parametrize(
    ("name", "args"),
    [("signal_parent", (0,)), ("signal_parent", (int(signal.SIGTERM),)), ("signal_by_descriptor", ())],
)
def test_nobody_else_can_be_signalled(land: Land, name: str, args: tuple[int, ...], newest_abi: int) -> None:
    """Before Landlock 6 the filter has to see to it."""
    assert land.attempt(name, *args, newest_abi=newest_abi).error == "EPERM"


def test_before_landlock_6_no_signal_goes_to_everybody(land: Land) -> None:
    """Landlock itself answers such a call with success, and delivers to none."""
    assert land.attempt("signal_everybody", newest_abi=5).error == "EPERM"


@pytest.mark.parametrize("newest_abi", [5, landlock.NEWEST_ABI])
def test_a_process_may_signal_itself(land: Land, newest_abi: int) -> None:
    assert land.attempt("signal_itself", newest_abi=newest_abi).result == "2 signals"


def test_an_old_landlock_does_not_let_files_be_cut(land: Land) -> None:
    """Landlock 2 does not know that to truncate is to write."""
    mine = land.root / "project/candidates/task/mine.py"
    for name in ("truncate", "cut_by_opening"):
        attempt = land.attempt(name, str(mine), newest_abi=2)
        assert attempt.error == "EACCES"
        assert attempt.sandbox == "landlock:2+seccomp"
    assert mine.read_text() == "here before"


def test_a_landlock_that_is_too_old_is_no_sandbox(land: Land) -> None:
    sandbox = land.attempt("limits", newest_abi=1).sandbox
    assert sandbox.startswith("unsandboxed (this kernel has Landlock 1,")


@pytest.mark.parametrize(
    "name",
    [
        "attach",
        "parents_memory",
        "parents_environment",
        "parents_descriptors",
        "limit_parent",
        "pin_parent",
        "slow_everybody",
    ],
)
def test_other_processes_are_out_of_reach(land: Land, name: str) -> None:
    """A limit of one second on the keeper would kill it; a mask on the reference would slow it."""
    assert land.attempt(name).error in ("EPERM", "EACCES")


def test_there_is_no_way_into_a_namespace_of_its_own(land: Land) -> None:
    assert land.attempt("new_user_namespace").error == "EPERM"


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="numbers of x86_64")
@pytest.mark.parametrize("number", [310, 438, 425, 321, 323, 250, 298, 165, 308, 29, 240])
def test_parts_of_the_kernel_that_no_tensor_needs_are_closed(land: Land, number: int) -> None:
    assert land.attempt("call", number, 0, 0, 0, 0, 0).error == "EPERM"


def test_calls_of_kernels_to_come_are_unknown(land: Land) -> None:
    assert land.attempt("call", 470).error == "ENOSYS"
    assert land.attempt("call", 2000).error == "ENOSYS"


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="only x86_64 has calls of two other kinds")
def test_calls_of_another_architecture_kill(land: Land) -> None:
    """Their numbers mean other things: each would be a way around the filter."""
    assert land.attempt("call", 0x40000000 | 41, 2, 1, 0).signal == signal.SIGSYS
    assert land.attempt("old_call").signal == signal.SIGSYS


@pytest.mark.parametrize("gpu", [False, True])
def test_no_capability_is_left_but_to_reach_files_that_are_granted(land: Land, gpu: bool) -> None:
    """Root becomes another user, who must still read what is root's; where root stays root, it needs none."""
    becomes_another = os.geteuid() == 0 and not gpu
    read_and_write_any_file = 0b110

    left = [int(text, 16) for text in land.attempt("capabilities", gpu=gpu).result]

    assert left == [read_and_write_any_file if becomes_another else 0] * 2


def test_limits_are_those_of_the_policy(land: Land) -> None:
    attempt = land.attempt("limits", file_bytes=1 << 20, data_bytes=1 << 33)

    core = resource.getrlimit(resource.RLIMIT_CORE)[1]
    assert attempt.result == [core if core == 0 else 1, 1 << 20, 1 << 33]


def test_a_file_cannot_grow_beyond_its_limit(land: Land) -> None:
    assert land.attempt("write_much", 1 << 17, file_bytes=1 << 16).error == "EFBIG"
    assert (land.scratch / "big").stat().st_size <= 1 << 16


def test_too_much_memory_is_an_error_that_torch_can_tell(land: Land) -> None:
    assert "allocate" in land.attempt("allocate", 1 << 33, data_bytes=1 << 32).result
    assert land.attempt("allocate", 1 << 20, data_bytes=1 << 32).result == "done"


def test_a_candidate_lives_as_if_nothing_were(land: Land) -> None:
    life = land.attempt("daily_life").result

    assert life["folder"] == life["home"] == str(land.scratch)
    assert life["temporary"].startswith(str(land.scratch / "tmp"))
    assert life["threads"] == [1]
    assert life["maps"]
    assert life["copied"]
    assert life["null"] == "b\n"
    assert life["processors"] == os.cpu_count()


def test_tensors_are_multiplied_on_all_threads(land: Land) -> None:
    assert land.attempt("multiply").result == [True, True]


def test_a_compiler_works_in_the_scratch_folder(land: Land) -> None:
    assert land.attempt("compile_and_run").result == 49


def test_a_library_from_its_build_entry_can_be_loaded(land: Land) -> None:
    source = land.root / "answer.c"
    source.write_text("int answer(void) { return 42; }\n")
    library = land.root / "build/own/answer.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True)

    assert land.attempt("load", str(library)).result == 42
    assert land.attempt("append", str(library)).error == "EACCES"


def test_torch_builds_extensions(land: Land) -> None:
    assert land.attempt("build_with_torch").result is True


def test_pools_of_processes_work(land: Land) -> None:
    """They need semaphores in shared memory."""
    assert land.attempt("pool_of_processes").result == [1, 2, 3]


def test_torch_compile_works(land: Land) -> None:
    """Its compiler runs in worker processes, and its files lie in the scratch folder."""
    environment = {"TORCHINDUCTOR_VEC_ISA_OK": "1"}
    attempt = land.attempt("torch_compile", readable=[__file__], environment=environment)

    assert attempt.result is True, attempt.error
    assert list((land.scratch / "inductor").rglob("*.so"))


def test_a_process_with_a_second_thread_is_not_confined(tmp_path: Path) -> None:
    """Landlock would hold the calling thread alone; nothing at all may have happened by then."""
    release = threading.Event()
    thread = threading.Thread(target=release.wait)
    thread.start()
    try:
        with pytest.raises(InternalError, match="threads"):
            confine(Policy(scratch=tmp_path / "scratch"))
    finally:
        release.set()
        thread.join()
    assert not (tmp_path / "scratch").exists()


if __name__ == "__main__":
    serve()
