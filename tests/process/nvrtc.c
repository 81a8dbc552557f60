/* nvrtc.c - as much of a compiler as says which capabilities it knows. */
__attribute__((visibility("default"))) int nvrtcGetNumSupportedArchs(int *n);
__attribute__((visibility("default"))) int nvrtcGetSupportedArchs(int *archs);

int nvrtcGetNumSupportedArchs(int *n)
{
    *n = 2;
    return 0;
}

int nvrtcGetSupportedArchs(int *archs)
{
    archs[0] = 75;
    archs[1] = 90;
    return 0;
}
