"""The seccomp profile of the agent's container: the system calls that the agent may not make.

The engine's own profile would do but for what it forbids besides (it names no call that is younger than itself). A list
of what is allowed, by name, has the same fault: an engine whose libseccomp does not know a name leaves it out, and
libseccomp 2.5.4, which is Debian 12's, knows no cachestat (Linux 6.5), without which the pages of a file cannot be
dropped but by writing them. So this is the list of all that is refused: whatever is known to exist and the agent, mkfs,
tc and ip do without. Names that an engine does not know it passes over.
"""

from __future__ import annotations

import json
from typing import Any, Final

_CLONE_NAMESPACES: Final = 0x7E020000  # CLONE_NEWNS | NEWCGROUP | NEWUTS | NEWIPC | NEWUSER | NEWPID | NEWNET
_MAY_ENTER: Final = 0x40020000  # CLONE_NEWNS | CLONE_NEWNET
_CLONE_NEWTIME: Final = 0x80
_EPERM: Final = 1
_ENOSYS: Final = 38

REFUSED: Final = {
    "the kernel itself": "init_module finit_module delete_module create_module query_module get_kernel_syms kexec_load "
    "kexec_file_load reboot bpf perf_event_open syslog iopl ioperm modify_ldt vm86 vm86old _sysctl sysfs "
    "lookup_dcookie nfsservctl acct swapon swapoff",
    "other processes": "ptrace process_vm_readv process_vm_writev process_madvise process_mrelease kcmp pidfd_getfd "
    "sched_setattr sched_setscheduler sched_setparam sched_setaffinity setpriority ioprio_set setrlimit",
    "namespaces, but for entering those that there are": "unshare chroot pivot_root sethostname setdomainname",
    "files by other ways than by their names": "open_by_handle_at name_to_handle_at fsopen fsconfig fsmount fspick "
    "move_mount open_tree open_tree_attr mount_setattr umount statmount listmount fanotify_init fanotify_mark "
    "inotify_init inotify_init1 inotify_add_watch quotactl quotactl_fd uselib ustat execveat",
    "making files that are neither files nor folders, and giving them attributes": "mknod mknodat symlink symlinkat "
    "link linkat setxattr lsetxattr fsetxattr setxattrat removexattr lremovexattr fremovexattr removexattrat "
    "file_setattr",
    "clocks": "settimeofday stime adjtimex clock_settime clock_settime64 clock_adjtime clock_adjtime64",
    "becoming somebody else": "setuid setuid32 setgid setgid32 setreuid setreuid32 setregid setregid32 setresuid "
    "setresuid32 setresgid setresgid32 setgroups setgroups32 setfsuid setfsuid32 setfsgid setfsgid32 personality "
    "lsm_set_self_attr",
    "keys": "add_key request_key keyctl",
    "memory beyond one's own": "userfaultfd remap_file_pages mbind migrate_pages move_pages set_mempolicy "
    "get_mempolicy set_mempolicy_home_node memfd_secret pkey_alloc pkey_free pkey_mprotect map_shadow_stack",
    "other ways to read and write": "io_uring_setup io_uring_enter io_uring_register io_setup io_submit io_destroy "
    "io_cancel io_getevents io_pgetevents io_pgetevents_time64 splice tee vmsplice",
    "messages between processes": "shmget shmat shmctl shmdt semget semop semctl semtimedop semtimedop_time64 msgget "
    "msgsnd msgrcv msgctl ipc mq_open mq_unlink mq_timedsend mq_timedreceive mq_timedsend_time64 "
    "mq_timedreceive_time64 mq_notify mq_getsetattr",
    "terminals": "vhangup",
}


def profile() -> dict[str, Any]:
    """As `docker run --security-opt seccomp=FILE` reads it. Without architectures: the machine's own, and no other."""
    names = sorted({name for group in REFUSED.values() for name in group.split()})
    return {
        "defaultAction": "SCMP_ACT_ALLOW",
        "syscalls": [
            {"names": names, "action": "SCMP_ACT_ERRNO", "errnoRet": _EPERM},
            # Its flags are in memory, which no filter reads; libc falls back to clone.
            {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": _ENOSYS},
            *(_refuse("clone", 0, flag, flag) for flag in _bits(_CLONE_NAMESPACES)),
            # Any kind of namespace but mounts and networks; 0 asks for whichever it is.
            *(_refuse("setns", 1, flag, flag) for flag in _bits(_CLONE_NAMESPACES & ~_MAY_ENTER | _CLONE_NEWTIME)),
            _refuse("setns", 1, 0xFFFFFFFF, 0),
        ],
    }


def option() -> str:
    """For HostConfig.SecurityOpt."""
    return f"seccomp={json.dumps(profile())}"


def _refuse(name: str, index: int, mask: int, value: int) -> dict[str, Any]:
    """A call whose argument at `index`, masked, is that. (Several conditions on one argument would be alternatives.)"""
    condition = {"index": index, "op": "SCMP_CMP_MASKED_EQ", "value": mask, "valueTwo": value}
    return {"names": [name], "action": "SCMP_ACT_ERRNO", "errnoRet": _EPERM, "args": [condition]}


def _bits(mask: int) -> list[int]:
    return [1 << bit for bit in range(32) if mask >> bit & 1]
