// Kernels with parameters of many kinds, as nvcc lays them out.
struct mixed {
    int a;
    double b;
    char c;
};
struct __align__(16) wide {
    float x[5];
};
struct large {
    char bytes[5000];
};

extern "C" __global__ void nothing()
{
}

extern "C" __global__ void kinds(int *p, char c, mixed m, wide w, short h, float f)
{
    *p = c + m.a + w.x[1] + h + f;
}

extern "C" __global__ void beyond_4k(int *p, large b, int n)
{
    *p = b.bytes[n];
}

template <class T> __global__ void of_type(T *p, const T value)
{
    *p = value;
}
template __global__ void of_type<double>(double *, const double);
