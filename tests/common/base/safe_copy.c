/* safe_copy.c - copies to and from memory that may not be there. */
#include "common/base/safe_copy.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static unsigned char *half_mapped(size_t page)
{
    unsigned char *memory = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq(memory, MAP_FAILED);
    cr_assert_eq(mprotect(memory + page, page, PROT_NONE), 0);
    return memory;
}

static void good_memory(void)
{
    enum { SIZE = 3000001 };
    unsigned char *from = malloc(SIZE), *to = calloc(1, SIZE);
    for (size_t i = 0; i < SIZE; i++)
        from[i] = (unsigned char)(i * 7 >> 3);
    cr_assert(rg_safe_copy_from(to, from, SIZE));
    cr_assert_arr_eq(to, from, SIZE);
    memset(to, 0, SIZE);
    cr_assert(rg_safe_copy_to(to, from, SIZE));
    cr_assert_arr_eq(to, from, SIZE);
    cr_assert(rg_safe_copy_from(to, from, 0));
    cr_assert(rg_safe_copy_to(NULL, from, 0));
    free(from);
    free(to);
}

static void bad_memory(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char *bad = half_mapped(page), own[64] = {1, 2, 3};
    cr_assert_not(rg_safe_copy_from(own, bad + page, 1));
    cr_assert_not(rg_safe_copy_from(own, bad + page - 32, 64));
    cr_assert(rg_safe_copy_from(own, bad + page - 64, 64));
    cr_assert_not(rg_safe_copy_to(bad + page, own, 1));
    cr_assert_not(rg_safe_copy_to(bad + page - 32, own, 64));
    cr_assert(rg_safe_copy_to(bad + page - 64, own, 64));
    cr_assert_not(rg_safe_copy_from(own, NULL, 8));
    cr_assert_not(rg_safe_copy_to((void *)16, own, 8));

    /* readable, not writable */
    cr_assert_eq(mprotect(bad, page, PROT_READ), 0);
    cr_assert(rg_safe_copy_from(own, bad, 64));
    cr_assert_not(rg_safe_copy_to(bad, own, 64));
    munmap(bad, 2 * page);
}

Test(copy, good_memory)
{
    good_memory();
}

Test(copy, bad_memory)
{
    bad_memory();
}

/* A container's sandbox may forbid the calls; the results are the same. */
Test(copy, without_the_system_calls)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof filter / sizeof filter[0], .filter = filter};
    cr_assert_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    cr_assert_eq(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
    good_memory();
    bad_memory();
}

/* As memory of devices is mapped, so is what the kernel's functions for the time of day read in every process. */
Test(copy, memory_of_devices)
{
    unsigned char own[64];
    uintptr_t at = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    while (maps && !at && fgets(line, sizeof line, maps))
        if (strstr(line, "[vvar]"))
            at = strtoul(line, NULL, 16);
    if (maps)
        fclose(maps);
    if (!at)
        cr_skip_test("this kernel maps no such memory");
    cr_assert(rg_safe_copy_from(own, (const void *)at, sizeof own));
    cr_assert_not(rg_safe_copy_to((void *)at, own, sizeof own));
    cr_assert(rg_memory_is_readable((const void *)at, sizeof own));
}

static void asked_for(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char *bad = half_mapped(page);
    for (size_t size = 1; size <= page; size = size * 2 + 1) {
        cr_assert(rg_memory_is_readable(bad + page - size, size));
        cr_assert(rg_memory_is_writable(bad + page - size, size));
        cr_assert_not(rg_memory_is_readable(bad + page - size, size + 1));
        cr_assert_not(rg_memory_is_writable(bad + page - size, size + 1));
    }
    cr_assert(rg_memory_is_readable(NULL, 0) && rg_memory_is_writable(NULL, 0));
    cr_assert_not(rg_memory_is_readable(NULL, 1));
    cr_assert_not(rg_memory_is_readable((void *)(uintptr_t)0xdead000000000000u, 4096));
    cr_assert_not(rg_memory_is_writable(bad, SIZE_MAX));
    cr_assert_eq(mprotect(bad, page, PROT_READ), 0);
    cr_assert(rg_memory_is_readable(bad, page));
    cr_assert_not(rg_memory_is_writable(bad, page));
    cr_assert_not(rg_memory_is_writable(bad, 3));
    munmap(bad, 2 * page);
}

Test(ask, kernel_with_the_call)
{
    asked_for();
}

/* Kernels before 5.14, and memory of devices. */
Test(ask, without_the_call)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof filter / sizeof filter[0], .filter = filter};
    cr_assert_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    cr_assert_eq(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
    asked_for();
}
