/*
 * fault.c - faults of kernels as CUDA's errors, in the log, and as a report like compute-sanitizer's.
 *
 * The log has one line. A report (SOFTGPU_REPORT=1) has the instruction, too, with its place in the sources
 * where the PTX names it (nvcc -lineinfo or -G), and the allocation that an address is nearest to. Kernels
 * are compiled to be watched then (compiler/codegen/builder/access.c); of others a report says what is known.
 */
#include "softgpu/driver/launch/fault.h"

#include "common/base/log.h"
#include "common/base/parse.h"
#include "common/cuda/errors.h"
#include "softgpu/driver/range/range.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MARK "========= "

static CUresult error_of(enum sg_fault fault)
{
    switch (fault) {
    case SG_FAULT_NONE:
        return CUDA_SUCCESS;
    case SG_FAULT_ILLEGAL_ADDRESS:
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    case SG_FAULT_MISALIGNED:
        return CUDA_ERROR_MISALIGNED_ADDRESS;
    case SG_FAULT_ILLEGAL_INSTRUCTION:
        return CUDA_ERROR_ILLEGAL_INSTRUCTION;
    case SG_FAULT_ASSERT:
        return CUDA_ERROR_ASSERT;
    case SG_FAULT_DEADLOCK:
    case SG_FAULT_TIMEOUT:
        return CUDA_ERROR_LAUNCH_TIMEOUT;
    case SG_FAULT_INVALID_PC:
        return CUDA_ERROR_INVALID_PC;
    case SG_FAULT_ADDRESS_SPACE:
        return CUDA_ERROR_INVALID_ADDRESS_SPACE;
    case SG_FAULT_STACK:
        return CUDA_ERROR_HARDWARE_STACK_ERROR;
    case SG_FAULT_OUT_OF_RESOURCES:
        return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    case SG_FAULT_TRAP:
        break;
    }
    return CUDA_ERROR_LAUNCH_FAILED;
}

static bool has_address(const struct sg_fault_report *report)
{
    return report->address != 0 || (report->fault == SG_FAULT_ILLEGAL_ADDRESS && report->thread_known);
}

static void name_thread(FILE *text, const struct sg_fault_report *report)
{
    if (!report->block_known)
        fprintf(text, "in a block that is not known");
    else if (report->thread_known)
        fprintf(text, "by thread (%u,%u,%u) in block (%u,%u,%u)", report->tid[0], report->tid[1],
                report->tid[2], report->ctaid[0], report->ctaid[1], report->ctaid[2]);
    else
        fprintf(text, "by a thread of block (%u,%u,%u)", report->ctaid[0], report->ctaid[1],
                report->ctaid[2]);
}

static void name_kind(FILE *text, const struct sg_fault_report *report)
{
    static const char *const spaces[] = {"memory",           "__shared__ memory",   "__global__ memory",
                                         "__local__ memory", "__constant__ memory", "parameter memory"};
    static const char *const accesses[] = {"access", "read", "write", "atomic operation"};
    const struct sg_site *site = report->site;
    switch (report->fault) {
    case SG_FAULT_ILLEGAL_ADDRESS:
    case SG_FAULT_MISALIGNED:
        if (site == NULL || site->access == SG_ACCESS_NONE)
            fprintf(text, "Invalid access to memory");
        else
            fprintf(text, "Invalid %s of size %u bytes in %s", accesses[site->access & 3], site->bytes,
                    spaces[site->space <= SG_SITE_PARAM ? site->space : 0]);
        break;
    case SG_FAULT_ADDRESS_SPACE:
        fprintf(text, "Invalid address space: an atomic operation on a thread's own memory");
        break;
    case SG_FAULT_STACK:
        fprintf(text, "Stack overflow");
        break;
    case SG_FAULT_TRAP:
        fprintf(text, "Trap");
        break;
    case SG_FAULT_ASSERT:
        fprintf(text, "Assertion failed");
        break;
    case SG_FAULT_INVALID_PC:
        fprintf(text, "Call through an invalid pointer");
        break;
    case SG_FAULT_TIMEOUT:
        fprintf(text, "The kernel runs for longer than SOFTGPU_TIMEOUT");
        break;
    case SG_FAULT_DEADLOCK:
        fprintf(text, "All threads of a block wait for each other");
        break;
    case SG_FAULT_OUT_OF_RESOURCES:
        fprintf(text, "No memory to run the kernel");
        break;
    default:
        fprintf(text, "Illegal instruction");
        break;
    }
}

/* The nearest allocation of which one end is at most this far away. */
#define NEAR (64ull << 20)

static bool nearest(uint64_t address, struct sg_range *out)
{
    static const uint64_t steps[] = {0, 256, 4096, 16384, 65536, 1u << 20, 16u << 20, NEAR};
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++)
        if ((address >= steps[i] && sg_range_find(address - steps[i], out)) ||
            (i > 0 && sg_range_find(address + steps[i], out)))
            return true;
    return false;
}

static void describe_address(FILE *text, const struct sg_fault_report *report)
{
    unsigned long long address = report->address;
    const struct sg_site *site = report->site;
    struct sg_range range;
    bool shared = site != NULL && site->space == SG_SITE_SHARED;
    fprintf(text, MARK "    Address 0x%llx is %s\n", address,
            report->fault == SG_FAULT_MISALIGNED ? "misaligned" : "out of bounds");
    if (report->fault == SG_FAULT_MISALIGNED || shared || !nearest(report->address, &range))
        return;
    unsigned long long size = range.size, base = range.base;
    if (report->address < range.base)
        fprintf(text,
                MARK "    and is %llu bytes before the nearest allocation at 0x%llx of size %llu bytes\n",
                base - address, base, size);
    else if (report->address >= range.base + range.size)
        fprintf(text,
                MARK "    and is %llu bytes after the nearest allocation at 0x%llx of size %llu bytes\n",
                address - (base + size) + 1, base, size);
    else
        fprintf(text, MARK "    and is %llu bytes inside of the allocation at 0x%llx of size %llu bytes\n",
                address - base, base, size);
}

/* On one line, however the PTX has it. */
static void write_instruction(FILE *text, const struct sg_site *site)
{
    fprintf(text, "\n" MARK "    in line %u of the PTX: ", site->ptx_line);
    bool space = false;
    for (const char *c = site->text; *c != '\0'; c++) {
        bool is_space = isspace((unsigned char)*c);
        if (is_space && !space)
            fputc(' ', text);
        if (!is_space)
            fputc(*c, text);
        space = is_space;
    }
}

static void write_report(const struct sg_launch *launch, const struct sg_fault_report *report)
{
    const struct sg_site *site = report->site;
    char *data = NULL;
    size_t size = 0;
    FILE *text = open_memstream(&data, &size);
    if (text == NULL)
        return;
    fputs(MARK, text);
    name_kind(text, report);
    fprintf(text, "\n" MARK "    at %s", site != NULL ? site->function : launch->kernel_name);
    if (site != NULL && site->file != NULL)
        fprintf(text, " in %s:%u", site->file, site->line);
    if (site != NULL)
        write_instruction(text, site);
    fprintf(text, "\n" MARK "    ");
    name_thread(text, report);
    fprintf(text, "\n");
    if (has_address(report))
        describe_address(text, report);
    fprintf(text, MARK "    in kernel %s, grid (%u,%u,%u), block (%u,%u,%u)\n", launch->kernel_name,
            launch->grid[0], launch->grid[1], launch->grid[2], launch->block[0], launch->block[1],
            launch->block[2]);
    fclose(text);
    for (size_t at = 0; at < size;) { /* in one piece, as far as the system allows */
        ssize_t written = write(STDERR_FILENO, data + at, size - at);
        if (written <= 0)
            break;
        at += (size_t)written;
    }
    free(data);
}

static bool wants_report(void)
{
    return rg_is_on(secure_getenv("SOFTGPU_REPORT"));
}

CUresult sg_fault_log(const struct sg_launch *launch, const struct sg_fault_report *report)
{
    CUresult error = error_of(report->fault);
    char *line = NULL;
    size_t size = 0;
    if (error == CUDA_SUCCESS)
        return error;
    FILE *text = open_memstream(&line, &size);
    if (text != NULL) {
        name_thread(text, report);
        if (has_address(report))
            fprintf(text, ", address 0x%llx", (unsigned long long)report->address);
        if (!wants_report())
            fputs("; SOFTGPU_REPORT=1 tells more", text);
        fclose(text);
    }
    rg_warn("kernel %s: %s %s", launch->kernel_name, rg_cuda_error_name(error), line != NULL ? line : "");
    free(line);
    if (wants_report())
        write_report(launch, report);
    return error;
}
