/* driver_pointers_behind.c - a library that is loaded by a program, and needs one beside it: driver_pointers.c. */
int count_devices(void);
int count_devices_behind(void);

int count_devices_behind(void)
{
    return count_devices();
}
