/*
 * decode.c - the memory operand of an x86-64 instruction, and functions without any.
 *
 * An access that is not aligned as its instruction demands, and one whose address is not canonical, are the
 * same exception on x86-64 (general protection), and the kernel passes on no address with it. The two are
 * different errors in CUDA, so the address is computed again from the instruction: prefixes, opcode map,
 * ModRM, SIB, displacement. What the instruction does is not looked at. Runs in a signal handler: touches
 * only the instruction's bytes, which the processor has just read.
 */
#include "softgpu/exec/fault/decode.h"

#if defined(__x86_64__)

#include <string.h>

struct instruction {
    const unsigned char *next;
    unsigned rex_x, rex_b; /* 8 if the extension bit is set */
    unsigned vector_size;  /* EVEX: scale of an 8-bit displacement; else 1 */
};

static uint64_t register_value(const ucontext_t *context, unsigned number)
{
    static const int index[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                  REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
    return (uint64_t)context->uc_mcontext.gregs[index[number]];
}

static bool is_prefix(unsigned char byte)
{
    return byte == 0x66 || byte == 0xf2 || byte == 0xf3 || byte == 0xf0 || byte == 0x2e || byte == 0x36 ||
           byte == 0x3e || byte == 0x26;
}

/** Whether a one-byte opcode is followed by ModRM, as far as memory accesses by compilers use them. */
static bool has_modrm(unsigned char opcode)
{
    if (opcode < 0x40)
        return (opcode & 7) < 4; /* arithmetic */
    return opcode == 0x63 || opcode == 0x69 || opcode == 0x6b || (opcode >= 0x80 && opcode <= 0x8f) ||
           opcode == 0xc0 || opcode == 0xc1 || opcode == 0xc6 || opcode == 0xc7 ||
           (opcode >= 0xd0 && opcode <= 0xd3) || (opcode >= 0xd8 && opcode <= 0xdf) || opcode == 0xf6 ||
           opcode == 0xf7 || opcode == 0xfe || opcode == 0xff;
}

/** Moves past prefixes and opcode to ModRM. */
static bool find_modrm(struct instruction *i)
{
    const unsigned char *p = i->next;
    i->vector_size = 1;
    for (int n = 0; is_prefix(*p) && n < 8; n++)
        p++;
    if (*p == 0xc5) { /* VEX of two bytes: no extension of index and base */
        i->next = p + 3;
        return true;
    }
    if (*p == 0xc4) {
        i->rex_x = p[1] & 0x40 ? 0 : 8;
        i->rex_b = p[1] & 0x20 ? 0 : 8;
        i->next = p + 4;
        return true;
    }
    if (*p == 0x62) {
        i->rex_x = p[1] & 0x40 ? 0 : 8;
        i->rex_b = p[1] & 0x20 ? 0 : 8;
        i->vector_size = 16u << (p[3] >> 5 & 3);
        i->next = p + 5;
        return true;
    }
    if ((*p & 0xf0) == 0x40) {
        i->rex_x = *p & 2 ? 8 : 0;
        i->rex_b = *p & 1 ? 8 : 0;
        p++;
    }
    if (*p != 0x0f) {
        i->next = p + 1;
        return has_modrm(*p);
    }
    p++;
    i->next = p + (*p == 0x38 || *p == 0x3a ? 2 : 1);
    return true;
}

bool sg_memory_operand(const ucontext_t *context, uint64_t *address)
{
    struct instruction i = {.next = (const unsigned char *)(uintptr_t)context->uc_mcontext.gregs[REG_RIP]};
    if (!find_modrm(&i))
        return false;

    unsigned modrm = *i.next++, mode = modrm >> 6, base = modrm & 7;
    uint64_t result = 0;
    if (mode == 3 || (mode == 0 && base == 5))
        return false; /* registers only; or relative to the instruction, which is never far */
    bool has_base = true;
    if (base == 4) {
        unsigned sib = *i.next++, index = (sib >> 3 & 7) | i.rex_x;
        base = sib & 7;
        if (index != 4)
            result += register_value(context, index) << (sib >> 6);
        has_base = !(base == 5 && mode == 0);
    }
    if (has_base)
        result += register_value(context, base | i.rex_b);
    if (mode == 1) {
        result += (uint64_t)((int64_t)(signed char)*i.next * (int64_t)i.vector_size);
    } else if (mode == 2 || !has_base) {
        int32_t displacement;
        memcpy(&displacement, i.next, sizeof(displacement));
        result += (uint64_t)(int64_t)displacement;
    }
    *address = result;
    return true;
}

bool sg_code_is_empty(const void *code)
{
    static const unsigned char mark[] = {0xf3, 0x0f, 0x1e,
                                         0xfa}; /* endbr64, of functions that are called by address */
    const unsigned char *at = code;
    for (size_t i = 0; i < sizeof(mark); i++)
        if (at[i] != mark[i])
            return i == 0 && at[0] == 0xc3;
    return at[sizeof(mark)] == 0xc3;
}

#else

bool sg_code_is_empty(const void *code)
{
    (void)code;
    return false;
}

bool sg_memory_operand(const ucontext_t *context, uint64_t *address)
{
    (void)context;
    (void)address;
    return false;
}

#endif
