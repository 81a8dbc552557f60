/* conditions.c - what a program may be started under, and what it may do to itself: limits, filters of system calls, other rights. */
#include "scenario.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, SIZE = 512 * PAGE };

/* 0, the first error, or -1 where data is wrong: copies of many sizes, managed memory, and a kernel. */
static int all_of_it(unsigned seed)
{
    static const size_t sizes[] = {100, 8192, 100000, SIZE};
    static unsigned char bytes[SIZE], back[SIZE];
    CUdeviceptr data, managed;
    int result = (int)cuMemAlloc_v2(&data, SIZE);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && result == 0; i++) {
        memset(bytes, (int)(seed + i), sizes[i]);
        result = (int)cuMemcpyHtoD_v2(data, bytes, sizes[i]);
        result = result ? result : (int)cuMemcpyDtoH_v2(back, data, sizes[i]);
        result = result ? result : memcmp(bytes, back, sizes[i]) ? -1 : 0;
    }
    result = result ? result : (int)cuMemAllocManaged(&managed, SIZE, CU_MEM_ATTACH_GLOBAL);
    if (result)
        return result;
    unsigned char *shared = (unsigned char *)managed;
    shared[5] = (unsigned char)seed;
    result = (int)cuMemsetD8_v2(managed + PAGE, (unsigned char)(seed + 1), SIZE - PAGE);
    result = result ? result : (int)cuCtxSynchronize();
    if (!result && (shared[5] != (unsigned char)seed || shared[SIZE - 1] != (unsigned char)(seed + 1)))
        result = -1;
    result = result ? result : device_work(seed);
    result = result ? result : (int)cuMemFree_v2(managed);
    return result ? result : (int)cuMemFree_v2(data);
}

static int plain(void)
{
    device_up();
    say("work: %d\n", all_of_it(3));
    return 0;
}

/* This program anew; returns where it cannot be. */
static int run_plain(void)
{
    execl(program_path, "conditions", ".plain", (char *)NULL);
    return 1;
}

/* --- limits ----------------------------------------------------------------------------------------------- */

static int no_more_descriptors(void)
{
    const struct rlimit none = {0, 0};
    device_up();
    say("before: %d\n", all_of_it(2));
    setrlimit(RLIMIT_NOFILE, &none);
    say("a file: %d\n", open("/dev/null", O_RDONLY));
    for (unsigned i = 0; i < 3; i++)
        say("work: %d\n", all_of_it(i));
    return 0;
}

/* What a child does that first prepares itself so. */
static void in_child(const char *what, bool (*prepare)(void))
{
    const int pid = fork();
    if (pid == 0)
        _exit(prepare() ? run_plain() : 99);
    say_child(what, pid);
}

static bool limit(int which, rlim_t most)
{
    const struct rlimit limits = {most, most};
    return setrlimit((__rlimit_resource_t)which, &limits) == 0;
}

static bool no_locked_memory(void)
{
    return limit(RLIMIT_MEMLOCK, 0);
}

static bool no_files_that_grow(void)
{
    return limit(RLIMIT_FSIZE, 0);
}

static bool no_core(void)
{
    return limit(RLIMIT_CORE, 0) && prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0;
}

static bool some_processor_time(void)
{
    return limit(RLIMIT_CPU, 50);
}

static bool no_queues(void)
{
    return limit(RLIMIT_MSGQUEUE, 0) && limit(RLIMIT_SIGPENDING, 0) && limit(RLIMIT_NICE, 0) &&
           limit(RLIMIT_RTPRIO, 0);
}

static bool endless_stacks(void)
{
    struct rlimit limits;
    if (getrlimit(RLIMIT_STACK, &limits) != 0)
        return false;
    limits.rlim_cur = limits.rlim_max;
    return setrlimit(RLIMIT_STACK, &limits) == 0;
}

static int limits_before(void)
{
    in_child("no locked memory", no_locked_memory);
    in_child("no files that grow", no_files_that_grow);
    in_child("no core", no_core);
    in_child("some processor time", some_processor_time);
    in_child("no queues", no_queues);
    in_child("endless stacks", endless_stacks);
    return 0;
}

/* --- filters of system calls -------------------------------------------------------------------------------- */

/* What a kernel, or the filter of a container, of some years ago does not know. */
static const int newer[] = {
    SYS_clone3,     SYS_userfaultfd,      SYS_memfd_create,      SYS_membarrier,     SYS_rseq,
    SYS_pidfd_open, SYS_process_vm_readv, SYS_process_vm_writev, SYS_io_uring_setup, SYS_close_range,
    SYS_statx,      SYS_openat2,          SYS_faccessat2,        SYS_preadv2,        SYS_mlock2,
    SYS_renameat2,  SYS_copy_file_range,  SYS_sched_setattr,     SYS_epoll_pwait2,   SYS_pidfd_send_signal};

/* From now on these calls fail. */
static bool refuse(const int *calls, size_t n, unsigned error)
{
    struct sock_filter filter[64];
    unsigned short at = 0;
    filter[at++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (size_t i = 0; i < n; i++) {
        filter[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)calls[i], 0, 1);
        filter[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error);
    }
    filter[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    const struct sock_fprog program = {at, filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0;
}

static bool older_kernel(void)
{
    return refuse(newer, sizeof newer / sizeof *newer, ENOSYS);
}

/* But the first, without which the C library makes no threads when it is refused so. */
static bool strict_filter(void)
{
    return refuse(newer + 1, sizeof newer / sizeof *newer - 1, EPERM);
}

static int calls_refused(void)
{
    in_child("an older kernel", older_kernel);
    in_child("a strict filter", strict_filter);
    return 0;
}

/* --- rights ------------------------------------------------------------------------------------------------- */

static void *work_in_thread(void *unused)
{
    say("in a thread: %d\n", device_work(6));
    return unused;
}

static void work_everywhere(void)
{
    pthread_t thread;
    say("work: %d\n", all_of_it(4));
    if (pthread_create(&thread, NULL, work_in_thread, NULL) == 0)
        pthread_join(thread, NULL);
}

/* As daemons do that need root's rights at their beginning alone. */
static int rights_dropped(void)
{
    device_up();
    say("before: %d\n", all_of_it(2));
    if (geteuid() == 0 && (setgroups(0, NULL) != 0 || setgid(65534) != 0 || setuid(65534) != 0))
        return 1;
    say("traced no more: %d\n", prctl(PR_SET_DUMPABLE, 0, 0, 0, 0));
    work_everywhere();
    return 0;
}

/* Where there is nothing, not even /proc, from when memory is first shared on. */
static int in_empty_root(void)
{
    char folder[] = "/tmp/conditions-XXXXXX";
    device_up();
    if (!mkdtemp(folder) || chdir(folder) != 0 || rmdir(folder) != 0)
        return 1;
    (void)chroot(".");
    for (unsigned i = 0; i < 3; i++)
        work_everywhere();
    return 0;
}

/* Namespaces, and a table of descriptors, of one's own; without the right to have them it is as before. */
static int unshared(void)
{
    static const int what[] = {CLONE_NEWNS, CLONE_NEWNET, CLONE_NEWUTS, CLONE_NEWIPC, CLONE_FS, CLONE_FILES};
    device_up();
    for (size_t i = 0; i < sizeof what / sizeof *what; i++) {
        (void)unshare(what[i]);
        say("unshared: %zu\n", i);
        work_everywhere();
    }
    return 0;
}

/* --- many, and much ------------------------------------------------------------------------------------------ */

static int at_once(void)
{
    enum { PROCESSES = 32 };
    int pids[PROCESSES], good = 0;
    for (int i = 0; i < PROCESSES; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            alarm(90);
            if (!freopen("/dev/null", "w", stdout))
                _exit(98);
            device_up();
            _exit(device_work((unsigned)i) == 0 ? 0 : 1);
        }
    }
    alarm(100);
    for (int i = 0; i < PROCESSES; i++) {
        int status = -1;
        waitpid(pids[i], &status, 0);
        good += status == 0;
    }
    say("good: %d\n", good);
    return 0;
}

/* As much as the system lets a program have: a quarter of its stack. */
static int long_lists(void)
{
    enum { WORDS = 12, WORD = 100000 };
    static char words[WORDS][WORD + 1];
    char *arguments[WORDS + 3] = {(char *)"conditions", (char *)".plain"}, name[16];
    for (int i = 0; i < WORDS; i++) {
        memset(words[i], 'a' + i, WORD);
        arguments[i + 2] = words[i];
        snprintf(name, sizeof name, "LONG_%d", i);
        if (i < WORDS / 2 && setenv(name, words[i], 1) != 0)
            return 1;
    }
    const int pid = fork();
    if (pid == 0) { /* what stands behind the name is for nobody */
        execv(program_path, arguments);
        _exit(errno);
    }
    say_child("long lists", pid);
    return 0;
}

/* Opened as plug-ins are that bring libraries of their own, and closed, and opened again. */
static int bound_deeply(void)
{
    typedef CUresult count_function(int *count);
    for (int i = 0; i < 3; i++) {
        void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
        count_function *count =
            library ? (count_function *)dlsym(library, "cuDeviceGetCount") : (count_function *)NULL;
        int n = -1;
        if (i == 0)
            device_up();
        say("counts: %d", count ? (int)count(&n) : -1);
        say(" %d\n", n);
        say("closed: %d\n", library ? dlclose(library) : -1);
        say("work: %d\n", all_of_it(5));
    }
    return 0;
}

const struct scenario scenarios[] = {
    {"no_more_descriptors", no_more_descriptors},
    {"limits_before", limits_before},
    {"calls_refused", calls_refused},
    {"rights_dropped", rights_dropped},
    {"in_empty_root", in_empty_root},
    {"unshared", unshared},
    {"at_once", at_once},
    {"long_lists", long_lists},
    {"bound_deeply", bound_deeply},
    {".plain", plain},
    {NULL, NULL},
};
