/*
 * visible_devices.c - see visible_devices.h.
 *
 * The first entry says what the list is made of: numbers, or the beginnings of UUIDs ("GPU-…", "MIG-…"). What is no
 * such entry, names no device or more than one, ends the list; what stands before it counts. A device named
 * twice leaves none.
 */
#include "common/cuda/visible_devices.h"

#include "common/base/uuid_text.h"

#include <ctype.h>
#include <string.h>

/* The one device whose UUID begins with the entry; -1: none or several. */
static int by_uuid(const char *entry, size_t length, const uint8_t (*uuids)[16], const bool *mig, int n)
{
    const bool names_mig = *entry == 'M';
    int found = -1;
    for (int i = 0; i < n; i++) {
        char text[RG_UUID_TEXT];
        const char *bare = rg_uuid_bare(rg_uuid_text(uuids[i], false, text, sizeof text));
        if (mig && mig[i] != names_mig)
            continue;
        if (length > strlen(text) || strncmp(bare, entry + RG_UUID_PREFIX, length - RG_UUID_PREFIX) != 0)
            continue;
        if (found >= 0)
            return -1;
        found = i;
    }
    return found;
}

/* The number that the entry begins with; -1: none, or no device has it. */
static int by_number(const char *entry, size_t length, int n)
{
    int value = 0;
    size_t i = length > 0 && *entry == '+';
    if (i == length || !isdigit((unsigned char)entry[i]))
        return -1;
    for (; i < length && isdigit((unsigned char)entry[i]) && value < n; i++)
        value = value * 10 + (entry[i] - '0');
    return value < n ? value : -1;
}

static bool is_uuid(const char *entry)
{
    return strncmp(entry, "GPU-", RG_UUID_PREFIX) == 0 || strncmp(entry, "MIG-", RG_UUID_PREFIX) == 0;
}

bool rg_visible_devices_by_uuid(const char *text)
{
    return text && is_uuid(text + strspn(text, " \t"));
}

int rg_visible_devices_choose(const char *text, const uint8_t (*uuids)[16], const bool *mig, int n, int *out)
{
    int count = 0;
    if (text == NULL) {
        for (int i = 0; i < n; i++)
            out[i] = i;
        return n;
    }
    const bool uuid_list = rg_visible_devices_by_uuid(text);
    for (const char *at = text;;) {
        const size_t skip = strspn(at, " \t");
        const size_t all = strcspn(at, ",");
        size_t length = all - (skip < all ? skip : all);
        const char *entry = at + skip;
        while (length > 0 && isspace((unsigned char)entry[length - 1]))
            length--;
        int device;
        if (uuid_list)
            device = length >= RG_UUID_PREFIX && is_uuid(entry) ? by_uuid(entry, length, uuids, mig, n) : -1;
        else
            device = by_number(entry, length, n);
        if (device < 0)
            return count;
        for (int i = 0; i < count; i++)
            if (out[i] == device)
                return 0;
        out[count++] = device;
        if (at[all] == '\0')
            return count;
        at += all + 1;
    }
}
