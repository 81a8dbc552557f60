// main returns while a kernel runs that never ends, with more queued behind it: the process must end all the same.
#include "check.h"

#include <unistd.h>

__global__ void spin(volatile int *flag)
{
    while (*flag == 0)
        __nanosleep(1000);
}

int main()
{
    int *flag;
    alarm(20); /* hanging is failing */
    OK(cudaHostAlloc(&flag, sizeof *flag, cudaHostAllocMapped));
    *flag = 0;
    for (int i = 0; i < 3; i++)
        spin<<<2, 32>>>(flag);
    GIVES(cudaErrorNotReady, cudaStreamQuery(0));
    return 0;
}
