/* core.c - files that processes share. */
#include "softgpu/driver/core/shared_file.h"
#include "softgpu/driver/driver.h"
#include "tests/softgpu/driver/support.h"

#include <string.h>
#include <unistd.h>

Test(core, shared_files)
{
    struct sg_shared_file file = {.kind = SG_SHARED_MEMORY, .size = 8192}, other = {0}, found;
    struct sg_shared_handle read;
    unsigned char handle[sizeof read];
    start_device();
    file.device = sg_device(0);
    const int number = sg_shared_file_new(&file);
    cr_assert_geq(number, 0);
    cr_expect_neq(memcmp(file.secret, other.secret, SG_SECRET), 0);
    cr_expect(sg_shared_file_known(number, SG_SHARED_MEMORY, &found) && found.size == 8192 &&
              found.device == file.device);
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
