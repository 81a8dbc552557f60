/* print.c - device printf against the host's, assertion messages, and the FIFO. */
#include "tests/softgpu/exec/kernel_test.h"

#include <math.h>
#include <stdarg.h>

static char written[4 << 20];
static size_t n_written;
static int n_writes;

static void keep(void *user, const char *text, size_t size)
{
    CHECK(user == (void *)written);
    memcpy(written + n_written, text, size);
    n_written += size;
    written[n_written] = '\0';
    n_writes++;
}

static const char *flushed(void)
{
    n_written = 0;
    written[0] = '\0';
    n_writes = 0;
    sg_exec_flush_output();
    return written;
}

/* --- formats --- */

struct call {
    const char *format;
    unsigned char arguments[256];
    size_t size;
    int32_t result;
};

static void print_call(struct sg_block *block, const unsigned char *params)
{
    struct call *call = PARAMETER(struct call, params);
    struct sg_thread thread = {.block = block};
    call->result = sg_rt_vprintf(&thread, call->format, call->size ? call->arguments : NULL);
}

static void put(struct call *call, const void *value, size_t size)
{
    call->size = (call->size + size - 1) & ~(size - 1);
    memcpy(call->arguments + call->size, value, size);
    call->size += size;
}

/** Lays out arguments as nvcc does: `types` has i (4 bytes), l (8), d (double) or s (pointer) for each. */
static struct call lay_out(const char *format, const char *types, va_list list)
{
    struct call call = {.format = format};
    for (; *types; types++) {
        if (*types == 'i') {
            int v = va_arg(list, int);
            put(&call, &v, 4);
        } else if (*types == 'l') {
            long long v = va_arg(list, long long);
            put(&call, &v, 8);
        } else if (*types == 'd') {
            double v = va_arg(list, double);
            put(&call, &v, 8);
        } else {
            const void *v = va_arg(list, const void *);
            put(&call, &v, 8);
        }
    }
    return call;
}

/**
 * The text and the count of arguments must be what is expected; NULL: what the host's printf makes of them.
 */
static void check_print(const char *expected, const char *types, const char *format, ...)
{
    char host[1024];
    va_list list;
    va_start(list, format);
    vsnprintf(host, sizeof(host), format, list);
    va_end(list);
    va_start(list, format);
    struct call call = lay_out(format, types, list);
    va_end(list);
    CHECK_EQUAL(run_blocks(print_call, 1, 1, &call), SG_FAULT_NONE);
    const char *got = flushed();
    if (strcmp(got, expected ? expected : host) != 0) {
        fprintf(stderr, "format \"%s\": \"%s\", expected \"%s\"\n", format, got, expected ? expected : host);
        test_failures++;
    }
    CHECK_EQUAL((uint32_t)call.result, strlen(types));
}

#pragma GCC diagnostic ignored "-Wformat"
#pragma GCC diagnostic ignored "-Wformat-security"
#pragma GCC diagnostic ignored "-Wformat-extra-args"

static void test_formats(void)
{
    check_print(NULL, "", "plain text\n");
    check_print(NULL, "", "100%%\n");
    check_print("", "s", "%s", "");
}

static void test_conversions(void)
{
    check_print(NULL, "ii", "%d %i\n", -5, 2147483647);
    check_print(NULL, "iiii", "%u %o %x %X\n", 4000000000u, 8, 0xbeef, 0xbeef);
    check_print(NULL, "ilil", "%d %lld %d %ld\n", 1, -1234567890123ll, 2, 5ll);
    check_print(NULL, "lll", "%lu %llx %zu\n", ~0ull, 0x123456789abcdefull, 77ull);
    check_print(NULL, "ii", "%hd %hhd\n", 70000, 300);
    check_print(NULL, "idid", "%d %f %d %e\n", 1, 3.25, 2, -1e300);
    check_print(NULL, "dddd", "%g %G %a %.3f\n", 1e-7, 1e20, 0.1, M_PI);
    check_print(NULL, "ddd", "%f %f %5.1f\n", NAN, INFINITY, -INFINITY);
    check_print(NULL, "is", "%c %s\n", 'x', "a string");
    check_print("(null)\n", "s", "%s\n", NULL);
    check_print(NULL, "ss", "%p %p\n", (void *)0x7f12345678, NULL);
    check_print(NULL, "iiii", "[%5d] [%-5d] [%05d] [%+d]\n", 42, 42, 42, 42);
    check_print(NULL, "iss", "[%#x] [%10s] [%-10s]\n", 255, "right", "left");
    check_print(NULL, "s", "[%.3s]\n", "truncated");
}

static void test_stars(void)
{
    check_print(NULL, "iiiid", "[%*d] [%*.*f]\n", 6, 42, 9, 3, 2.71828);
    check_print(NULL, "ii", "[%*d]\n", -6, 42);
    check_print(NULL, "id", "[%.*f]\n", -1, 1.5);
    check_print("[%y] 5\n", "i", "[%y] %d\n", 5); /* not a conversion: printed as it is */
    check_print("50%", "", "50%");
    check_print(NULL, "is", "%-3c|%s\n", 'y', "");
}

static void test_results(void)
{
    struct call call = {.format = NULL};
    CHECK_EQUAL(run_blocks(print_call, 1, 1, &call), SG_FAULT_NONE);
    CHECK_EQUAL((uint32_t)call.result, (uint32_t)-1);
#ifndef __SANITIZE_THREAD__         /* which reads its notes on bad addresses, too, and does not survive it */
    call.format = (const char *)64; /* a format that cannot be read is the kernel's fault */
    CHECK_EQUAL(run_blocks(print_call, 1, 1, &call), SG_FAULT_ILLEGAL_ADDRESS);
    call.format = "%s\n";
    const char *bad = (const char *)128;
    put(&call, &bad, 8);
    CHECK_EQUAL(run_blocks(print_call, 1, 1, &call), SG_FAULT_ILLEGAL_ADDRESS);
    CHECK_EQUAL(strlen(flushed()), 0);
#endif
    put(&call, &(uint64_t){7}, 8);
    call.format = "%1000000d\n"; /* a message has its limit */
    CHECK_EQUAL(run_blocks(print_call, 1, 1, &call), SG_FAULT_NONE);
    CHECK(strlen(flushed()) > 60000 && n_written <= 65536);
}

/* --- threads and order --- */

static void print_thread(struct sg_thread *t, const unsigned char *params)
{
    uint32_t arguments[2] = {t->block->ctaid[0], t->linear};
    (void)params;
    sg_rt_vprintf(t, "block %d thread %d\n", arguments);
    sg_rt_barrier_sync(t, 0, 0);
}

static void test_many_threads(void)
{
    static uint32_t next[20];
    CHECK_EQUAL(run_threads(print_thread, 20, 50, NULL), SG_FAULT_NONE);
    uint32_t lines = 0;
    for (const char *line = flushed(); *line; line = strchr(line, '\n') + 1) {
        uint32_t block, thread;
        CHECK_EQUAL(sscanf(line, "block %u thread %u", &block, &thread), 2);
        CHECK(block < 20 && next[block]++ == thread); /* a block's threads begin in order */
        lines++;
    }
    CHECK_EQUAL(lines, 1000);
    CHECK_EQUAL(n_writes, 1);
}

/* --- the FIFO's limit --- */

static void print_numbers(struct sg_block *block, const unsigned char *params)
{
    struct sg_thread thread = {.block = block};
    (void)params;
    for (uint32_t i = 0; i < 1000; i++)
        sg_rt_vprintf(&thread, "number %d\n", &i);
}

static void test_limit(void)
{
    sg_exec_set_output_limit(4096);
    CHECK_EQUAL(run_blocks(print_numbers, 1, 1, NULL), SG_FAULT_NONE);
    const char *text = flushed();
    CHECK(n_written > 3000 && n_written <= 4096);
    CHECK(strncmp(text, "number ", 7) == 0); /* whole messages were dropped */
    CHECK(strcmp(text + n_written - 11, "number 999\n") == 0);
    uint32_t expected = (uint32_t)atoi(text + 7);
    for (const char *line = text; *line; line = strchr(line, '\n') + 1)
        CHECK_EQUAL(atoi(line + 7), expected++);
    sg_exec_set_output_limit(1 << 20);
}

/* --- assertions --- */

static void fail_assertion(struct sg_thread *t, const unsigned char *params)
{
    (void)params;
    if (t->block->ctaid[1] == 1 && t->tid[0] == 2)
        sg_rt_assertfail(t, "i < n", "kernel.cu", 42, "void kernel(int)", 1);
    sg_rt_barrier_sync(t, 0, 0);
}

static void test_assertion(void)
{
    void *unused = NULL;
    struct sg_fault_report report;
    struct sg_launch launch = thread_launch(fail_assertion, 1, 4, &unused);
    launch.grid[1] = 2;
    CHECK_EQUAL(sg_exec_run(&launch, &report), SG_FAULT_ASSERT);
    CHECK(report.ctaid[1] == 1 && report.tid[0] == 2);
    const char *expected =
        "kernel.cu:42: void kernel(int): block: [0,1,0], thread: [2,0,0] Assertion `i < n` failed.\n";
    CHECK(strcmp(flushed(), expected) == 0);
}

int main(void)
{
    sg_exec_set_output(keep, written);
    test_formats();
    test_conversions();
    test_stars();
    test_results();
    test_many_threads();
    test_limit();
    test_assertion();
    return TEST_RESULT();
}
