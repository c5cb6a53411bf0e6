"""Computes what it should, and tries from inside a confined process to reach all that is not its own.

The test puts the real places into LAND. Each attack is harmless where it succeeds: it writes to files of the
test, sends signal 0, maps nothing, mounts on its own folder. What is reached is printed, line by line.
"""

import ctypes
import errno
import fcntl
import glob
import os
import resource
import signal
import socket
import struct
import subprocess

import torch

LAND = {}
DEVICES = ("cpu",)
ATTACKS = []
libc = ctypes.CDLL(None, use_errno=True)
X86 = os.uname().machine == "x86_64"


def attack(function):
    ATTACKS.append((function.__name__, function))
    return function


def attacks_on(name, places, function):
    for place in places:
        ATTACKS.append((f"{name} {place}", lambda place=place: function(place)))


def checked(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "refused")
    return result


def call(number, *args):
    return checked(libc.syscall(number, *args))


def others():
    """Every process that is not this one or below it; on a GPU machine there may be many."""
    own = {os.getpid()}
    pids = sorted(int(name) for name in os.listdir("/proc") if name.isdigit())
    return [pid for pid in pids if pid not in own][:2000]


# Files.

SECRETS = [
    "project/results/verdicts.csv",
    "project/references/t.py",
    "project/candidates/t/other.py",
    "project/kbench.toml",
    "home/secret",
]
PLACES = ["project/results", "project/candidates/t", "project", "home", "cache", "cache/builds", "."]


def at(place):
    return os.path.join(LAND["root"], place)


def read_file(place):
    with open(at(place)) as file:
        file.read()


def append_file(place):
    with open(at(place), "a") as file:
        file.write("reached")


def replace_file(place):
    with open("mine", "w") as file:
        file.write("reached")
    os.rename("mine", at(place))


def read_through_link(place):
    link = f"link-{len(os.listdir('.'))}"
    os.symlink(at(place), link)
    with open(link) as file:
        file.read()


def read_through_folder_link(place):
    link = f"link-{len(os.listdir('.'))}"
    os.symlink(os.path.dirname(at(place)), link)
    with open(os.path.join(link, os.path.basename(place))) as file:
        file.read()


def swap_under_a_reader(place):
    """Opens by a name that becomes a link between two looks."""
    with open("bait", "w") as file:
        file.write("mine")
    descriptor = os.open(".", os.O_DIRECTORY)
    os.unlink("bait")
    os.symlink(at(place), "bait")
    os.close(os.open("bait", os.O_RDWR, dir_fd=descriptor))


def link_here(place):
    os.link(at(place), f"hard-{len(os.listdir('.'))}")


def truncate_file(place):
    os.truncate(at(place), 0)


def remove_file(place):
    os.unlink(at(place))


def change_times(place):
    before = os.stat(at(place)).st_mtime_ns
    os.utime(at(place), (1, 1))
    if os.stat(at(place)).st_mtime_ns == before:
        raise PermissionError


def change_mode(place):
    before = os.stat(at(place)).st_mode
    os.chmod(at(place), 0o777 if before & 0o777 != 0o777 else 0o700)
    if os.stat(at(place)).st_mode == before:
        raise PermissionError


def change_owner(place):
    os.chown(at(place), 1, 1)


def new_file(place):
    with open(os.path.join(at(place), "reached"), "w") as file:
        file.write("reached")


def new_folder(place):
    os.mkdir(os.path.join(at(place), "reached_folder"))


def new_link(place):
    os.symlink("/", os.path.join(at(place), "reached_link"))


def new_socket(place):
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(os.path.join(at(place), "reached_socket"))


def list_folder(place):
    os.listdir(at(place))


def watch_folder(place):
    checked(libc.inotify_add_watch(checked(libc.inotify_init1(0)), at(place).encode(), 0x100))


def write_opened(path):
    os.close(os.open(path, os.O_WRONLY))


for function in (read_file, append_file, replace_file, read_through_link, read_through_folder_link, swap_under_a_reader, link_here):
    attacks_on(function.__name__, SECRETS, function)
for function in (truncate_file, remove_file, change_times, change_mode, change_owner):
    attacks_on(function.__name__, SECRETS, function)
for function in (new_file, new_folder, new_link, new_socket, watch_folder):
    attacks_on(function.__name__, PLACES, function)
attacks_on("list_folder", [place for place in PLACES if not place.startswith("cache")], list_folder)
attacks_on(
    "write_opened",
    [
        "/proc/sys/kernel/core_pattern",
        "/proc/sysrq-trigger",
        "/proc/sys/vm/drop_caches",
        "/dev/tty",
        "/dev/kmsg",
        "/dev/mem",
        "/dev/fuse",
        "/dev/userfaultfd",
        "/etc/passwd",
        "/etc/ld.so.preload",
        *glob.glob("/sys/fs/cgroup/cgroup.procs"),
        *glob.glob("/sys/fs/cgroup/*/cgroup.procs"),
        *glob.glob("/dev/sd*"),
        *glob.glob("/dev/vd*"),
        *glob.glob("/dev/nvme*"),
        torch.__file__,
        os.__file__,
    ],
    write_opened,
)


@attack
def write_own_source():
    write_opened(__file__)


@attack
def read_the_shadow_file():
    with open("/etc/shadow") as file:
        file.read()


@attack
def temporary_files_of_others():
    for folder in ("/tmp", "/var/tmp", "/run", "/root", "/home"):
        try:
            os.listdir(folder)
        except OSError:
            continue
        return
    raise PermissionError


@attack
def inherited_descriptors():
    """Only pipes, sockets, devices and memory are open: no file of anybody's."""
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
        if target.startswith("/") and not target.startswith(("/dev/", "/proc/", "/memfd:", os.getcwd())):
            return target
    raise PermissionError


@attack
def lock_the_build_cache():
    with open(at("cache/builds/locks/" + "a" * 64)) as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


@attack
def read_the_build_of_another():
    with open(at("cache/builds/" + "a" * 64 + "/kernel.so"), "rb") as file:
        file.read()


# The network.

for family in ("AF_INET", "AF_INET6", "AF_NETLINK", "AF_PACKET", "AF_VSOCK", "AF_ALG", "AF_BLUETOOTH", "AF_CAN"):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET):
        if hasattr(socket, family):
            ATTACKS.append((f"socket {family} {kind}", lambda family=family, kind=kind: socket.socket(getattr(socket, family), kind).close()))


@attack
def connect_to_a_daemon_in_a_folder():
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(at("home/daemon"))


@attack
def connect_to_an_abstract_daemon():
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect("\0" + at("home/daemon"))


@attack
def datagrams_to_anybody():
    socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)


# Other processes.


def on_others(function):
    """Reached where one of them all is."""

    def try_all():
        for pid in others():
            try:
                function(pid)
            except OSError:
                continue
            return pid
        raise PermissionError

    ATTACKS.append((function.__name__, try_all))
    return function


@on_others
def send_signal(pid):
    os.kill(pid, 0)


@on_others
def send_signal_to_group(pid):
    group = os.getpgid(pid)
    if group <= 1:
        # Would stand for everybody that may be signalled.
        raise PermissionError
    os.killpg(group, 0)


@on_others
def send_signal_to_thread(pid):
    call(234 if X86 else 131, pid, pid, 0)


@on_others
def send_signal_by_descriptor(pid):
    descriptor = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(descriptor, 0)
    finally:
        os.close(descriptor)


@on_others
def attach(pid):
    checked(libc.ptrace(0x4206, pid, 0, 0))


@on_others
def write_memory(pid):
    os.close(os.open(f"/proc/{pid}/mem", os.O_RDWR))


@on_others
def write_memory_by_call(pid):
    call(311 if X86 else 271, pid, 0, 0, 0, 0, 0)


@on_others
def read_memory_by_call(pid):
    call(310 if X86 else 270, pid, 0, 0, 0, 0, 0)


@on_others
def read_environment(pid):
    with open(f"/proc/{pid}/environ", "rb") as file:
        file.read()


@on_others
def take_descriptors(pid):
    for name in os.listdir(f"/proc/{pid}/fd"):
        os.close(os.open(f"/proc/{pid}/fd/{name}", os.O_RDONLY))
        return
    raise PermissionError


@on_others
def take_descriptors_by_call(pid):
    call(438, os.pidfd_open(pid), 0, 0)


@on_others
def limit_others(pid):
    resource.prlimit(pid, resource.RLIMIT_NOFILE)


@on_others
def slow_others(pid):
    os.setpriority(os.PRIO_PROCESS, pid, os.getpriority(os.PRIO_PROCESS, pid))


@on_others
def pin_others(pid):
    os.sched_setaffinity(pid, os.sched_getaffinity(pid))


@on_others
def be_killed_last(pid):
    with open(f"/proc/{pid}/oom_score_adj", "w") as file:
        file.write("0")


@attack
def slow_a_whole_user():
    os.setpriority(os.PRIO_USER, 0, 0)


@attack
def be_killed_after_the_judge():
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write("-500")


@attack
def lift_own_limits():
    for which in (resource.RLIMIT_FSIZE, resource.RLIMIT_NPROC, resource.RLIMIT_NOFILE):
        soft, hard = resource.getrlimit(which)
        try:
            resource.setrlimit(which, (soft, hard + 1))
        except (ValueError, OSError):
            continue
        return which
    raise PermissionError


@attack
def leave_the_control_group():
    for path in glob.glob("/sys/fs/cgroup/**/cgroup.procs", recursive=True)[:50]:
        try:
            write_opened(path)
        except OSError:
            continue
        return path
    raise PermissionError


# The kernel: namespaces, users, and ways around a filter.

NAMESPACES = {"files": 0x20000, "groups": 0x2000000, "names": 0x4000000, "ipc": 0x8000000, "users": 0x10000000, "pids": 0x20000000}
attacks_on("unshare", NAMESPACES, lambda name: checked(libc.unshare(NAMESPACES[name])))


def clone_into(name):
    pid = libc.syscall(56 if X86 else 220, NAMESPACES[name] | signal.SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    os.waitpid(checked(pid), 0)


attacks_on("clone", NAMESPACES, clone_into)


@attack
def join_a_namespace():
    descriptor = os.open("/proc/self/ns/net", os.O_RDONLY)
    checked(libc.setns(descriptor, 0))


@attack
def mount():
    os.makedirs("mounted", exist_ok=True)
    checked(libc.mount(b"none", b"mounted", b"tmpfs", 0, None))


@attack
def bind_mount():
    os.makedirs("mounted", exist_ok=True)
    checked(libc.mount(at("home").encode(), b"mounted", None, 4096, None))


@attack
def change_root():
    os.chroot(".")


@attack
def become_another_user():
    user = os.getuid()
    os.setresuid(user + 1, user + 1, user + 1)


@attack
def become_root():
    if os.getuid() == 0:
        raise PermissionError
    os.setresuid(0, 0, 0)


@attack
def become_another_group():
    os.setgroups([0, 1, 2])


@attack
def rename_the_machine():
    socket.sethostname(socket.gethostname())


if X86:
    CALLS = {
        "io_uring_setup": (425, 1, ctypes.create_string_buffer(256)),
        "bpf": (321, 0, ctypes.create_string_buffer(64), 64),
        "perf_event_open": (298, ctypes.create_string_buffer(struct.pack("IIQ", 1, 112, 0), 112), 0, -1, -1, 0),
        "userfaultfd": (323, 1),
        "keyctl": (250, 0, -3, 1),
        "add_key": (248, b"user", b"reached", b"x", 1, -2),
        "request_key": (249, b"user", b"reached", None, -2),
        "shmget": (29, 0, 4096, 0o1600),
        "semget": (64, 0, 1, 0o1600),
        "msgget": (68, 0, 0o1600),
        "mq_open": (240, b"reached", 0o102, 0o600, None),
        "clone3": (435, ctypes.create_string_buffer(88), 88),
        "open_by_handle_at": (304, -100, ctypes.create_string_buffer(64), 0),
        "fanotify_init": (300, 0, 0),
        "pivot_root": (155, b".", b"."),
        "kcmp": (312, os.getpid(), os.getppid(), 0, 0, 0),
        "syslog": (103, 10, 0, 0),
        "quotactl": (179, 0x800007, None, 0, None),
        "acct": (163, b"/reached"),
        "swapoff": (168, b"/reached"),
        "init_module": (175, None, 0, b""),
        "iopl": (172, 3),
        "a call to come": (600,),
    }
    attacks_on("call", CALLS, lambda name: call(*CALLS[name]))


@attack
def trace_me():
    checked(libc.ptrace(0, 0, 0, 0))


@attack
def type_into_a_terminal():
    for descriptor in (0, 1, 2):
        try:
            fcntl.ioctl(descriptor, 0x5412, b"\n")
        except OSError:
            continue
        return
    raise PermissionError


@attack
def open_a_terminal():
    os.close(os.open("/dev/ptmx", os.O_RDWR))


@attack
def run_from_memory():
    """A program that lies in no file is confined like any other."""
    descriptor = os.memfd_create("program", 0)
    os.write(descriptor, b"#!/bin/sh\ncat " + at("home/secret").encode() + b"\n")
    if subprocess.run([f"/proc/self/fd/{descriptor}"], pass_fds=[descriptor], capture_output=True, check=False).returncode:
        raise PermissionError


@attack
def reach_by_a_child():
    program = f"import os; open({at('home/secret')!r})"
    if subprocess.run(["python3", "-c", program], capture_output=True, check=False).returncode:
        raise PermissionError


@attack
def list_shared_memory():
    os.listdir("/dev/shm")


@attack
def grow_a_file_beyond_the_limit():
    with open("sparse", "wb") as file:
        file.truncate(2**40)


def try_all():
    reached = []
    for name, function in ATTACKS:
        try:
            result = function()
        except (OSError, ValueError) as error:
            if getattr(error, "errno", None) == errno.ENOEXEC:
                reached.append(f"{name}: not tried")
            continue
        reached.append(f"{name}: {result}")
    os.chdir(os.environ["HOME"])
    for line in reached:
        print("REACHED", line, flush=True)
    print(f"TRIED {len(ATTACKS)}", flush=True)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        try_all()

    def forward(self, x):
        return x * 2 + 1
