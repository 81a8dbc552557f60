/*
 * print.c - device printf and assert: the text is made where the kernel runs and put into the FIFO
 * (output.c).
 *
 * nvcc passes the arguments of printf in a buffer, each aligned to its size: 4 bytes for int and shorter, 8
 * for long, long long, double and pointers. A string argument is an address. Format and strings are the
 * kernel's: an address in them that cannot be read is the kernel's fault like any other, so no lock is held
 * while they are read. Other threads may change them meanwhile: a conversion is copied before it is looked at.
 *
 * Any thread that runs a kernel; the buffer for the text is the slot's.
 */
#include "softgpu/exec/device_runtime/output.h"
#include "softgpu/guest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_MAX (64u << 10) /* bytes of one message; what is longer is cut off */

/** The message being made. */
struct text {
    char *data;
    size_t size, capacity;
};

static void put(struct text *text, const char *from, size_t size)
{
    size_t room = text->capacity - text->size;
    size_t part = size < room ? size : room;
    memcpy(text->data + text->size, from, part);
    text->size += part;
}

/** The next argument of `size` bytes. */
static uint64_t next_argument(const unsigned char **arguments, uintptr_t base, size_t size)
{
    uintptr_t offset = ((uintptr_t)*arguments - base + size - 1) & ~(uintptr_t)(size - 1);
    uint64_t value = 0;
    memcpy(&value, (const unsigned char *)base + offset, size);
    *arguments = (const unsigned char *)base + offset + size;
    return value;
}

/** One conversion, as written in the format and taken apart. */
struct conversion {
    char flags[8];
    int width, precision; /* -1: none */
    unsigned longs;       /* of the length modifiers: 8-byte integers if not 0 */
    unsigned shorts;      /* "h": 1, "hh": 2 */
    char type;
};

static const char *parse_number(const char *p, int *number)
{
    int value = 0;
    for (; *p >= '0' && *p <= '9'; p++)
        if (value < 1 << 20)
            value = value * 10 + (*p - '0');
    *number = value;
    return p;
}

#define CONVERSION_MAX 64u /* characters of a conversion that are looked at; a longer one is none */

/** Copies the start of what follows a '%', so that it stays what it is while it is taken apart. */
static void copy_conversion(char to[CONVERSION_MAX + 1], const char *from)
{
    size_t n = 0;
    for (; n < CONVERSION_MAX; n++) /* not beyond its end: there may be nothing */
        if ((to[n] = *(const volatile char *)&from[n]) == '\0')
            return;
    to[n] = '\0';
}

/** Takes apart what follows a '%'; returns its end, and in `stars` which of width and precision are
 * arguments. */
static const char *parse(const char *p, struct conversion *c, unsigned *stars)
{
    size_t n = 0;
    *c = (struct conversion){.width = -1, .precision = -1};
    *stars = 0;
    for (; *p && strchr("#0 +-", *p); p++)
        if (n < sizeof(c->flags) - 1 && !strchr(c->flags, *p))
            c->flags[n++] = *p;
    if (*p == '*') {
        *stars |= 1;
        p++;
    } else if (*p >= '0' && *p <= '9') {
        p = parse_number(p, &c->width);
    }
    if (*p == '.') {
        p++;
        if (*p == '*') {
            *stars |= 2;
            p++;
        } else {
            p = parse_number(p, &c->precision);
        }
    }
    for (;; p++) {
        if (*p == 'l' || *p == 'j' || *p == 'z' || *p == 't' || *p == 'q')
            c->longs++;
        else if (*p == 'h')
            c->shorts++;
        else if (*p != 'L')
            break;
    }
    c->type = *p;
    return *p ? p + 1 : p;
}

/** Prints one value with the host's printf. */
static void convert(struct text *text, const struct conversion *c, uint64_t value)
{
    char format[40], width[12] = "", precision[13] = "";
    char *to = text->data + text->size;
    size_t room = text->capacity - text->size;
    int n = 0;

    if (c->width >= 0)
        snprintf(width, sizeof(width), "%d", c->width);
    if (c->precision >= 0)
        snprintf(precision, sizeof(precision), ".%d", c->precision);
    bool integer = strchr("diouxX", c->type) != NULL;
    snprintf(format, sizeof(format), "%%%s%s%s%s%c", c->flags, width, precision,
             !integer         ? ""
             : c->longs       ? "ll"
             : c->shorts == 1 ? "h"
             : c->shorts      ? "hh"
                              : "",
             c->type);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    if (integer && c->longs) {
        n = snprintf(to, room, format, (unsigned long long)value);
    } else if (integer || c->type == 'c') {
        n = snprintf(to, room, format, (unsigned)value);
    } else if (c->type == 'p') {
        n = snprintf(to, room, format, (void *)(uintptr_t)value);
    } else if (c->type == 's') {
        n = snprintf(to, room, format, value ? sg_guest_pointer((const char *)(uintptr_t)value) : "(null)");
    } else {
        double number;
        memcpy(&number, &value, sizeof(number));
        n = snprintf(to, room, format, number);
    }
#pragma GCC diagnostic pop
    if (n > 0)
        text->size += (size_t)n < room ? (size_t)n : room - 1;
}

static bool slot_text(struct sg_slot *slot, struct text *text)
{
    if (!slot->text && !(slot->text = malloc(TEXT_MAX)))
        return false;
    *text = (struct text){.data = slot->text, .capacity = TEXT_MAX - 1};
    return true;
}

int32_t sg_rt_vprintf(struct sg_thread *t, const char *format, const void *arguments)
{
    const struct sg_run *run = t->block->engine;
    const unsigned char *next = arguments;
    struct text text;
    int32_t count = 0;

    if (!format)
        return -1;
    if (!slot_text(run->slot, &text))
        return -2;
    while (*format) {
        size_t plain = strcspn(format, "%");
        put(&text, format, plain);
        format += plain;
        if (!*format)
            break;
        if (format[1] == '%') {
            put(&text, "%", 1);
            format += 2;
            continue;
        }
        struct conversion c;
        unsigned stars;
        char copy[CONVERSION_MAX + 1];
        copy_conversion(copy, format + 1);
        const char *end = format + 1 + (parse(copy, &c, &stars) - copy);
        if (!c.type || !strchr("cdiouxXpeEfFgGaAs", c.type)) {
            put(&text, format, (size_t)(end - format)); /* not a conversion: printed as it is */
            format = end;
            continue;
        }
        format = end;
        if (stars & 1) {
            int width = (int)next_argument(&next, (uintptr_t)arguments, 4);
            if (width < 0)
                strncat(c.flags, "-", sizeof(c.flags) - strlen(c.flags) - 1);
            c.width = width < 0 ? (int)(-(unsigned)width & 0xfffff) : width & 0xfffff;
            count++;
        }
        if (stars & 2) {
            int precision = (int)next_argument(&next, (uintptr_t)arguments, 4);
            c.precision = precision < 0 ? -1 : precision & 0xfffff;
            count++;
        }
        bool wide = c.longs || strchr("peEfFgGaAs", c.type);
        convert(&text, &c, next_argument(&next, (uintptr_t)arguments, wide && c.type != 'c' ? 8 : 4));
        count++;
    }
    sg_output_append(text.data, text.size, false);
    return count;
}

void sg_rt_assertfail(struct sg_thread *t, const char *expression, const char *file, uint32_t line,
                      const char *function, uint64_t char_size)
{
    const struct sg_run *run = t->block->engine;
    const uint32_t *block = t->block->ctaid, *thread = t->tid;
    struct text text;

    (void)char_size; /* 1 for all compilers that exist */
    if (slot_text(run->slot, &text)) {
        int n = snprintf(text.data, text.capacity,
                         "%s:%u: %s: block: [%u,%u,%u], thread: [%u,%u,%u] Assertion `%s` failed.\n",
                         file ? file : "(unknown)", line, function ? function : "(unknown)", block[0],
                         block[1], block[2], thread[0], thread[1], thread[2], expression ? expression : "");
        if (n > 0)
            sg_output_append(text.data, (size_t)n < text.capacity ? (size_t)n : text.capacity - 1, true);
    }
    sg_rt_fault(t, SG_FAULT_ASSERT);
}
