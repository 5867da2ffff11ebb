"""A real SLURM of three small nodes on this one machine, for tests; root, Debian, no systemd.

    python tests/slurm/slurm_cluster.py     # brings it up and holds it until Ctrl-C

munge, mariadb, slurmdbd, slurmctld and a slurmd a node run as children of this process and die with
it; ports are free ones, all state is in one folder of /tmp. Missing packages come from apt. What is
outside is taken away at the end: a line in /etc/hosts, and the link /etc/slurm/slurm.conf, as the
executor plug-in hands no SLURM_CONF on to job steps. So there is one such cluster a machine at a
time.
"""

import contextlib
import fcntl
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

PACKAGES = (
    "munge slurmctld slurmd slurm-client slurm-wlm-basic-plugins "
    "slurmdbd slurm-wlm-mysql-plugin mariadb-server"
)
PROGRAMS = ("munged", "slurmctld", "slurmd", "slurmdbd", "mariadbd")
WAIT_SECONDS = 90
NODES = ("alpha", "beta", "gamma")
GPUS = 2  # a node; fake ones, see _gres
ACCOUNT = "lab"
CONF = Path("/etc/slurm/slurm.conf")
HOSTS = Path("/etc/hosts")  # processes on two nodes find each other by the nodes' names
HOSTS_LINE = f"127.0.0.1 {' '.join(NODES)}  # rltok's test SLURM\n"

# KillWait is SLURM's own default; OverMemoryKill needs no cgroups; a requeued job may start again
# after cred_expire + 1 seconds. Fewer CPUs than here would keep tests waiting for each other.
SLURM_CONF = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthInfo=socket={folder}/munge.sock,cred_expire=5
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
MailProg=/bin/true
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1
JobAcctGatherParams=OverMemoryKill
KillWait=30
ReturnToService=2
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=2,bf_interval=2
GresTypes=gpu
StateSaveLocation={folder}/ctld
SlurmdSpoolDir={folder}/slurmd-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={ports[1]}
AccountingStoragePass={folder}/munge.sock
AccountingStorageTRES=gres/gpu
AccountingStoreFlags=job_comment
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=cpu Nodes=alpha,beta Default=YES DefaultTime=60 MaxTime=2-0
PartitionName=gpu Nodes=alpha,beta DefaultTime=60 MaxTime=1-0
PartitionName=spare Nodes=gamma PriorityTier=1 DefaultTime=60 MaxTime=1-0
PartitionName=urgent Nodes=gamma PriorityTier=2 DefaultTime=60 MaxTime=1-0
"""
NODE = (
    "NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=8 RealMemory=64000 "
    "Gres=gpu:fake:{gpus}\n"
)
SLURMDBD_CONF = """
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
DbdHost={host}
DbdAddr=127.0.0.1
DbdPort={ports[1]}
SlurmUser=root
PidFile={folder}/slurmdbd.pid
LogFile={folder}/slurmdbd.log
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
StorageLoc=slurm
"""


class ClusterError(RuntimeError):
    """The cluster can't be brought up; the message says why, with the end of the log concerned."""


def install() -> None:
    """apt-get what is missing.

    Raises:
        ClusterError: not root, no apt-get, or it fails.
    """
    if os.geteuid() or not sys.platform.startswith("linux"):
        raise ClusterError("the test SLURM needs root on Linux (Debian)")
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    os.environ["PATH"] = path
    if all(shutil.which(name) for name in PROGRAMS):
        return
    if not shutil.which("apt-get"):
        raise ClusterError(f"not installed, and no apt-get to install with: {PACKAGES}")
    command = f"apt-get install -qq -y --no-install-recommends {PACKAGES}"
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    for attempt in (command, f"apt-get update -qq && {command}"):
        done = subprocess.run(attempt, shell=True, env=quiet, capture_output=True, text=True)
        if done.returncode == 0:
            return
    raise ClusterError(f"{command} failed:\n{done.stdout[-1500:]}{done.stderr[-1500:]}")


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class Cluster:
    """Context manager: call it with a client's command to run that."""

    def __init__(self):
        self.daemons: list[tuple[str, subprocess.Popen]] = []
        self.environment: dict[str, str] = {}  # of the daemons

    def __enter__(self) -> "Cluster":
        install()
        self.lock = open("/tmp/rltok-slurm.lock", "w")  # noqa: SIM115 (held as long as the cluster)
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ClusterError("another test SLURM is up on this machine") from None
        if CONF.exists() and not CONF.is_symlink():
            raise ClusterError(f"{CONF}: this machine has a SLURM of its own")
        self.folder = Path(tempfile.mkdtemp(prefix="rltok-slurm-", dir="/tmp"))
        self.environment = {**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf")}
        try:
            self._write()
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception) -> None:
        """Cancel what still runs, stop the daemons in the order that lets each finish its work."""
        if len(self.daemons) > 3:  # slurmctld is there
            self("scancel", "--user=root", check=False)
            self._until(lambda: not self("squeue", "-h", check=False), "end of jobs", fail=False)
        for _, process in reversed(self.daemons):
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        CONF.unlink(missing_ok=True)
        HOSTS.write_text(HOSTS.read_text().replace(HOSTS_LINE, ""))
        shutil.rmtree(self.folder, ignore_errors=True)
        self.lock.close()

    def __call__(self, *command: str, check: bool = True) -> str:
        """Run a client command on the cluster and return what it prints."""
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        if check and done.returncode:
            raise ClusterError(f"{' '.join(command)}: {done.stderr}")
        return done.stdout.strip()

    def _write(self) -> None:
        folder, host = self.folder, socket.gethostname().split(".")[0]
        folder.chmod(0o755)
        (folder / "dev").mkdir()
        (folder / "ctld").mkdir()
        key = folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        ports = free_ports(2 + len(NODES))
        text = SLURM_CONF.format(folder=folder, host=host, ports=ports)
        gres = "AutoDetect=off\n"
        for node, port in zip(NODES, ports[2:], strict=True):
            text += NODE.format(node=node, host=host, port=port, gpus=GPUS)
            for index in range(GPUS):
                # a GPU needs a device file of its own: a null device stands in for it
                file = folder / "dev" / f"{node}{index}"
                os.mknod(file, 0o666 | 0o020000, os.makedev(1, 3))
                gres += f"NodeName={node} Name=gpu Type=fake File={file}\n"
        (folder / "slurm.conf").write_text(text)
        CONF.parent.mkdir(exist_ok=True)
        CONF.unlink(missing_ok=True)
        CONF.symlink_to(folder / "slurm.conf")
        HOSTS.write_text(HOSTS.read_text().replace(HOSTS_LINE, "") + HOSTS_LINE)
        (folder / "gres.conf").write_text(gres)
        (folder / "cgroup.conf").write_text("")
        dbd = folder / "slurmdbd.conf"
        dbd.write_text(SLURMDBD_CONF.format(folder=folder, host=host, ports=ports))
        dbd.chmod(0o600)

    def _start(self) -> None:
        folder = self.folder
        sock = f"{folder}/munge.sock"
        self._daemon(
            "munged",
            ["munged", "--foreground", "--force", "--num-threads=4"]
            + [f"--socket={sock}", f"--key-file={folder}/munge.key"]
            + [f"--{name}-file={folder}/munged.{name}" for name in ("pid", "log", "seed")],
            lambda: self("munge", "-n", "-S", sock),
        )
        database, sql = folder / "mysql", f"{folder}/mysql.sock"
        done = subprocess.run(
            ["mariadb-install-db", "--no-defaults", "--user=root", f"--datadir={database}"]
            + ["--skip-test-db", "--auth-root-authentication-method=socket"]
            + ["--auth-root-socket-user=root"],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise ClusterError(f"mariadb-install-db: {done.stdout}{done.stderr}")
        self._daemon(
            "mariadbd",
            ["mariadbd", "--no-defaults", "--user=root", f"--datadir={database}"]
            + [f"--socket={sql}", "--skip-networking", "--innodb-flush-log-at-trx-commit=0"]
            + ["--innodb-buffer-pool-size=64M", "--innodb-lock-wait-timeout=900"],
            lambda: self("mariadb-admin", "--no-defaults", f"--socket={sql}", "ping"),
        )
        self.environment["MYSQL_UNIX_PORT"] = sql
        self._daemon("slurmdbd", ["slurmdbd", "-D"], lambda: self("sacctmgr", "-n", "list", "user"))
        for what in (
            ["cluster", "test"],
            ["account", ACCOUNT],
            ["user", "root", f"account={ACCOUNT}"],
        ):
            self("sacctmgr", "-i", "add", *what, check=False)  # the controller may add it first
        self._daemon("slurmctld", ["slurmctld", "-D"], lambda: self("scontrol", "ping"))
        for node in NODES:
            (folder / f"slurmd-{node}").mkdir()
            self._daemon(f"slurmd-{node}", ["slurmd", "-D", "-N", node])
        self._until(lambda: self.states() == {"idle"}, "idle nodes", "slurmctld")

    def states(self) -> set[str]:
        return set(self("sinfo", "-h", "-N", "-o", "%T", check=False).split())

    def _daemon(self, name: str, command: list[str], up: Callable | None = None) -> None:
        """Start a daemon that dies with this process, and wait until it answers."""
        with open(self.folder / f"{name}.out", "w", encoding="utf-8") as file:
            process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "TERM", *command],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                cwd="/",
                start_new_session=True,  # Ctrl-C is for the parent, who stops them in order
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0)),
            )
        self.daemons.append((name, process))

        def answers() -> bool:
            if process.poll() is not None:
                raise ClusterError(f"{name} ended (code {process.returncode}):\n{self.log(name)}")
            try:
                return up is None or bool(up()) or True
            except ClusterError:
                return False

        self._until(answers, name, name)

    def log(self, name: str) -> str:
        """The last lines of a daemon's own log."""
        files = [self.folder / f"{name}.{end}" for end in ("out", "log")]
        return "\n".join(
            line for file in files if file.is_file() for line in file.read_text().splitlines()[-20:]
        )

    def _until(self, condition: Callable, what: str, log: str = "", fail: bool = True) -> None:
        end = time.monotonic() + WAIT_SECONDS
        while not condition():
            if time.monotonic() > end:
                if fail:
                    raise ClusterError(f"no {what} after {WAIT_SECONDS} s:\n{self.log(log)}")
                return
            time.sleep(0.2)


def main() -> int:
    with Cluster() as cluster:
        print(f"{cluster.folder}: Ctrl-C stops it")
        print(cluster("sinfo", "-N", "-o", "%N %P %c CPUs %m MB %G %T"), flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()
    return 0


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    sys.exit(main())
