/* core.c - which devices an application sees, and files that processes share. */
#include "softgpu/driver/core/device.h"
#include "softgpu/driver/core/shared_file.h"
#include "tests/softgpu/driver/support.h"

#include <string.h>
#include <unistd.h>

Test(core, visible_devices)
{
    const CUuuid uuids[3] = {{"\x12\x34\x56"}, {"\x12\x99"}, {"\xab"}};
    static const struct {
        const char *text;
        int n, devices[3];
    } lists[] = {{NULL, 3, {0, 1, 2}},
                 {"", 0, {0}},
                 {"2,0", 2, {2, 0}},
                 {" 1 , 2 ", 2, {1, 2}},
                 {"+1", 1, {1}},
                 {"1x,0", 2, {1, 0}}, /* what the number begins with counts */
                 {"1,-1,0", 1, {1}},  /* what names no device ends the list */
                 {"0,3,1", 1, {0}},
                 {"1,1", 0, {0}}, /* named twice: none */
                 {"GPU-123456,GPU-ab", 2, {0, 2}},
                 {"GPU-12", 0, {0}},     /* the beginning of two */
                 {"GPU-1299,0", 1, {1}}, /* not in a list of such */
                 {"99999999999999999999", 0, {0}}};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        int found[3] = {-1, -1, -1};
        cr_expect_eq(sg_visible_devices(lists[i].text, uuids, 3, found), lists[i].n, "%s", lists[i].text);
        for (int k = 0; k < lists[i].n; k++)
            cr_expect_eq(found[k], lists[i].devices[k], "%s", lists[i].text);
    }
}

Test(core, shared_files)
{
    struct sg_shared_file file = {.kind = SG_SHARED_MEMORY, .device = 0, .size = 8192}, other = {0}, found;
    struct sg_shared_handle read;
    unsigned char handle[sizeof read];
    start_device();
    const int number = sg_shared_file_new(&file);
    cr_assert_geq(number, 0);
    cr_expect_neq(memcmp(file.secret, other.secret, SG_SECRET), 0);
    cr_expect(sg_shared_file_known(number, SG_SHARED_MEMORY, &found) && found.size == 8192);
    cr_expect_not(sg_shared_file_known(number, SG_SHARED_EVENT, &found));
    cr_expect_not(sg_shared_file_known(STDIN_FILENO, SG_SHARED_MEMORY, &found));
    cr_expect_neq(ftruncate(number, 0), 0, "nobody takes memory from under another");
    sg_shared_handle_make(handle, &file, number, 4096, 100);
    cr_assert(sg_shared_handle_read(handle, SG_SHARED_MEMORY, &read));
    cr_expect(read.offset == 4096 && read.size == 100);
    cr_expect_not(sg_shared_handle_read(handle, SG_SHARED_POOL, &read));
    const int opened = sg_shared_handle_open(&read, &found);
    cr_assert_geq(opened, 0);
    close(opened);
    read.secret[3] ^= 1; /* made up */
    cr_expect_lt(sg_shared_handle_open(&read, &found), 0);
    cr_expect(sg_shared_process_lives(getpid()));
    close(number);
}
