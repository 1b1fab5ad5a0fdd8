// SPDX-License-Identifier: Apache-2.0

package confine

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// refused are system calls that no program of a command needs: those that change the system or
// the box, that reach into other processes, that have had many holes, and that keep memory which
// belongs to no process and is not counted.
var refused = []uint32{
	unix.SYS_ACCT, unix.SYS_ADD_KEY, unix.SYS_BPF, unix.SYS_CHROOT, unix.SYS_CLOCK_ADJTIME, unix.SYS_CLOCK_SETTIME, unix.SYS_DELETE_MODULE,
	unix.SYS_FANOTIFY_INIT, unix.SYS_FINIT_MODULE, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSOPEN, unix.SYS_FSPICK, unix.SYS_INIT_MODULE,
	unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER, unix.SYS_IO_URING_SETUP, unix.SYS_KCMP, unix.SYS_KEXEC_LOAD, unix.SYS_KEYCTL,
	unix.SYS_LOOKUP_DCOOKIE, unix.SYS_MEMFD_CREATE, unix.SYS_MOUNT, unix.SYS_MOUNT_SETATTR, unix.SYS_MOVE_MOUNT, unix.SYS_MSGGET,
	unix.SYS_NAME_TO_HANDLE_AT, unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_OPEN_TREE, unix.SYS_PERF_EVENT_OPEN, unix.SYS_PIDFD_GETFD,
	unix.SYS_PIVOT_ROOT, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PTRACE, unix.SYS_QUOTACTL, unix.SYS_REBOOT,
	unix.SYS_REQUEST_KEY, unix.SYS_SETDOMAINNAME, unix.SYS_SETHOSTNAME, unix.SYS_SETNS, unix.SYS_SETTIMEOFDAY, unix.SYS_SHMGET, unix.SYS_SWAPOFF,
	unix.SYS_SWAPON, unix.SYS_SYSLOG, unix.SYS_UMOUNT2, unix.SYS_UNSHARE, unix.SYS_USERFAULTFD, unix.SYS_VHANGUP,
}

// families are the kinds of sockets that a program may open. All of them end in the network
// namespace of the box, which others (such as those to the host of a virtual machine) do not.
var families = []uint32{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK}

// architectures are the names of the kernel for those on which commands are confined.
var architectures = map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}

// Offsets in the data that the kernel gives a filter.
const (
	offsetCall = 0
	offsetArch = 4
	offsetArg0 = 16 // its low half: both architectures are little-endian
)

const newNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

func load(offset uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
}

func answer(with uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: with}
}

// unless goes over n instructions when the value is not k.
func unless(k uint32, n uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: k, Jf: n}
}

func errno(e unix.Errno) unix.SockFilter { return answer(unix.SECCOMP_RET_ERRNO | uint32(e)) }

// program returns the filter.
func program(arch uint32) []unix.SockFilter {
	f := []unix.SockFilter{
		load(offsetArch),
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: arch, Jt: 1},
		answer(unix.SECCOMP_RET_KILL_PROCESS), // the numbers of another architecture mean other calls
		load(offsetCall),
		{Code: unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K, K: 0x40000000, Jf: 1}, // x32
		errno(unix.EPERM),
		// The flags of clone3 are in memory, where a filter cannot see them: libraries use clone.
		unless(unix.SYS_CLONE3, 1),
		errno(unix.ENOSYS),
		unless(unix.SYS_CLONE, 4),
		load(offsetArg0),
		{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, K: newNamespaces, Jf: 1},
		errno(unix.EPERM),
		answer(unix.SECCOMP_RET_ALLOW),
		unless(unix.SYS_SOCKET, uint8(3+2*len(families)-1)),
		load(offsetArg0),
	}
	for _, family := range families {
		f = append(f, unless(family, 1), answer(unix.SECCOMP_RET_ALLOW))
	}
	f = append(f, errno(unix.EAFNOSUPPORT))
	for _, nr := range refused {
		f = append(f, unless(nr, 1), errno(unix.EPERM))
	}
	return append(f, answer(unix.SECCOMP_RET_ALLOW))
}

// filterCalls refuses system calls to this thread, for good.
func filterCalls() error {
	arch, ok := architectures[runtime.GOARCH]
	if !ok {
		return fmt.Errorf("there is no filter for %s", runtime.GOARCH)
	}
	f := program(arch)
	prog := unix.SockFprog{Len: uint16(len(f)), Filter: &f[0]}
	if _, _, errno := unix.RawSyscall(unix.SYS_PRCTL, unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&prog))); errno != 0 {
		return errno
	}
	return nil
}
