/* sandbox.c: what a helper may still do once its libraries are open: compute, and read and write
 * the descriptors that it has. Everything else fails with EPERM: opening, connecting, executing,
 * signalling, tracing. So what takes a decoder over has the file that it came in, and a parent that
 * checks what it is told. */
#include "media/ffmpeg/av.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define READ_BYTES ((rlim_t)4 << 30)
#define WRITE_BYTES ((rlim_t)12 << 30) /* an encoder of AV1 looks at many frames at once */
#define CPU_SECONDS 7200

void sandbox_close_others(void)
{
    if (syscall(SYS_close_range, 4u, ~0u, 0u))
        for (int fd = 4; fd < 4096; fd++)
            close(fd);
}

static void limit(int what, rlim_t most)
{
    struct rlimit r = { most, most }, old;
    if (!getrlimit((__rlimit_resource_t)what, &old) && old.rlim_max < most)
        r = (struct rlimit) { old.rlim_max, old.rlim_max };
    setrlimit((__rlimit_resource_t)what, &r);
}

#if defined(__x86_64__)
#define ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCH AUDIT_ARCH_AARCH64
#endif

#ifdef ARCH
#define LOAD(field)                                                                                \
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)offsetof(struct seccomp_data, field))
#define DO(action) BPF_STMT(BPF_RET | BPF_K, (action))
#define NO(why) DO(SECCOMP_RET_ERRNO | (why))
#define ALLOW(name)                                                                                \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)SYS_##name, 0, 1), DO(SECCOMP_RET_ALLOW)
/* The call, if in its argument (the lower half of it) none, or all, of these bits are set. */
#define UNLESS(name, arg, bits)                                                                    \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)SYS_##name, 0, 4), LOAD(args[arg]),              \
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, (uint32_t)(bits), 0, 1), NO(EPERM),                   \
        DO(SECCOMP_RET_ALLOW)
#define IF_SET(name, arg, bits)                                                                    \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)SYS_##name, 0, 4), LOAD(args[arg]),              \
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, (uint32_t)(bits), 1, 0), NO(EPERM),                   \
        DO(SECCOMP_RET_ALLOW)
#define IF_IS(name, arg, value)                                                                    \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)SYS_##name, 0, 4), LOAD(args[arg]),              \
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)(value), 1, 0), NO(EPERM),                   \
        DO(SECCOMP_RET_ALLOW)

static const struct sock_filter rules[] = {
    LOAD(arch),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCH, 1, 0),
    DO(SECCOMP_RET_KILL_PROCESS),
    LOAD(nr),
    ALLOW(read),
    ALLOW(write),
    ALLOW(pread64),
    ALLOW(pwrite64),
    ALLOW(lseek),
    ALLOW(close),
    ALLOW(recvfrom), /* of the only socket there is */
    ALLOW(sendto),
    ALLOW(futex),
    ALLOW(munmap),
    ALLOW(mremap),
    ALLOW(madvise),
    ALLOW(brk),
    ALLOW(clock_gettime),
    ALLOW(clock_nanosleep),
    ALLOW(nanosleep),
    ALLOW(gettimeofday),
    ALLOW(getrandom),
    ALLOW(getpid),
    ALLOW(gettid),
    ALLOW(sched_yield),
    ALLOW(sched_getaffinity),
    ALLOW(sysinfo),
    ALLOW(getrusage),
    ALLOW(rt_sigprocmask),
    ALLOW(rt_sigaction),
    ALLOW(rt_sigreturn),
    ALLOW(sigaltstack),
    ALLOW(set_robust_list),
    ALLOW(rseq),
    ALLOW(restart_syscall),
    ALLOW(exit),
    ALLOW(exit_group),
    UNLESS(mmap, 2, PROT_EXEC),
    UNLESS(mprotect, 2, PROT_EXEC),
    IF_SET(clone, 0, CLONE_THREAD),
    IF_IS(prctl, 0, PR_SET_NAME), /* threads have names */
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)SYS_clone3, 0, 1),
    NO(ENOSYS), /* its flags lie in memory: the C library asks clone() then */
    NO(EPERM),
};

static berth_status filter(berth_err *err)
{
    const struct sock_fprog prog = { .len = ARRAY_LEN(rules),
                                     .filter = (struct sock_filter *)(uintptr_t)rules };
    if (!prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog))
        return BERTH_OK;
    return err_sys(err, BERTH_EUNSUPPORTED, errno,
                   "files of video and sound are read without rights, which this system does not "
                   "let go of (seccomp)");
}
#else
static berth_status filter(berth_err *err)
{
    return err_set(err, BERTH_EUNSUPPORTED, "no list of system calls for this processor");
}
#endif

berth_status sandbox_enter(bool writes, berth_err *err)
{
    limit(RLIMIT_CORE, 0);
    limit(RLIMIT_CPU, CPU_SECONDS);
    limit(RLIMIT_NOFILE, 4);
    if (!writes)
        limit(RLIMIT_FSIZE, 0);
#ifndef SANITIZED /* their shadow is larger than any limit */
    limit(RLIMIT_DATA, writes ? WRITE_BYTES : READ_BYTES);
#endif
    prctl(PR_SET_PDEATHSIG, 0);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        return err_sys(err, BERTH_EUNSUPPORTED, errno, "giving up rights");
    return filter(err);
}
