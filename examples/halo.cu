/*
 * Heat spreads over a plate, whose rows are divided among the ranks of an MPI job, each with a GPU. In every step a rank needs the
 * rows at its neighbours' edges (the halo): while the GPU is at work on rows inside, those at the edges go from GPU to host, by MPI to the
 * neighbour, and from there to its GPU. With --ipc ranks of one machine open each other's memory (cudaIpcOpenMemHandle) instead, and
 * the rows go from GPU to GPU; MPI only says that they are there.
 *
 *   mpirun -n 4 halo [ROWS] [STEPS] [--ipc]
 *
 * At the end rank 0 does all of it alone, and the plates must be the same, bit for bit.
 */
#include "example.h"

#include <mpi.h>

#include <vector>

#define COLUMNS 256

/* Rows of a plate, with one row more at either end: a neighbour's, or an edge that stays as it is. */
struct part {
    int first, rows; /* of the plate */
    float *now, *next;
    cudaStream_t inside, edges;
};

static int rank, ranks;

/* One step of the rows from `from` on: each cell becomes the mean of its neighbours. */
__global__ void step(const float *now, float *next, int from, int rows)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = from + blockIdx.y;

    if (x >= COLUMNS || (int)blockIdx.y >= rows) {
        return;
    }
    size_t at = (size_t)y * COLUMNS + x;
    bool edge = x == 0 || x == COLUMNS - 1;
    next[at] = edge ? now[at] : 0.25f * (now[at - 1] + now[at + 1] + now[at - COLUMNS] + now[at + COLUMNS]);
}

static void launch(const part &part, int from, int rows, cudaStream_t stream)
{
    if (rows > 0) {
        step<<<dim3(COLUMNS / 64, rows), 64, 0, stream>>>(part.now, part.next, from, rows);
        CHECK_LAUNCH();
    }
}

static part make_part(int first, int rows)
{
    part part = {first, rows, NULL, NULL, NULL, NULL};
    std::vector<float> cells((size_t)(rows + 2) * COLUMNS);

    for (size_t i = 0; i < cells.size(); i++) {
        cells[i] = (float)(example_mix((unsigned)(i + (size_t)first * COLUMNS)) >> 8) / (1 << 24);
    }
    CHECK(cudaStreamCreateWithFlags(&part.inside, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&part.edges, cudaStreamNonBlocking));
    for (float **plate : {&part.now, &part.next}) {
        CHECK(cudaMalloc(plate, cells.size() * sizeof(float)));
        CHECK(cudaMemcpy(*plate, cells.data(), cells.size() * sizeof(float), cudaMemcpyHostToDevice));
    }
    return part;
}

static void free_part(const part &part)
{
    CHECK(cudaFree(part.now));
    CHECK(cudaFree(part.next));
    CHECK(cudaStreamDestroy(part.inside));
    CHECK(cudaStreamDestroy(part.edges));
}

static float *row(float *plate, int which)
{
    return plate + (size_t)which * COLUMNS;
}

/* Up and down: the neighbour (none: MPI_PROC_NULL), the row that it gets, and the one that it gives. */
struct side {
    int neighbour, given, taken;
    float *out, *in;  /* page-locked: the rows on their way */
    float *theirs[2]; /* with --ipc: both plates of the neighbour, by turns its `now` and its `next` */
    int their_rows;
};

static const size_t row_bytes = COLUMNS * sizeof(float);

static void exchange_by_host(const part &part, side *sides)
{
    for (int i = 0; i < 2; i++) {
        CHECK(cudaMemcpyAsync(sides[i].out, row(part.next, sides[i].given), row_bytes, cudaMemcpyDeviceToHost,
                              part.edges));
    }
    CHECK(cudaStreamSynchronize(part.edges));
    for (int i = 0; i < 2; i++) {
        /* What goes up on this rank comes from below on the neighbour. */
        MPI_Sendrecv(sides[i].out, COLUMNS, MPI_FLOAT, sides[i].neighbour, i, sides[1 - i].in, COLUMNS,
                     MPI_FLOAT, sides[1 - i].neighbour, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    for (int i = 0; i < 2; i++) {
        if (sides[i].neighbour != MPI_PROC_NULL) {
            CHECK(cudaMemcpyAsync(row(part.next, sides[i].taken), sides[i].in, row_bytes,
                                  cudaMemcpyHostToDevice, part.edges));
        }
    }
}

/* Each rank takes what it needs out of its neighbours' memory, when all have made their edges. */
static void exchange_by_ipc(const part &part, const side *sides, int turn)
{
    CHECK(cudaStreamSynchronize(part.edges));
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < 2; i++) {
        if (sides[i].neighbour != MPI_PROC_NULL) {
            float *theirs = row(sides[i].theirs[1 - turn], i == 0 ? sides[i].their_rows : 1);
            CHECK(cudaMemcpyAsync(row(part.next, sides[i].taken), theirs, row_bytes, cudaMemcpyDefault,
                                  part.edges));
        }
    }
    CHECK(cudaStreamSynchronize(part.edges));
    MPI_Barrier(MPI_COMM_WORLD); /* nobody writes into what others still read */
}

static void open_neighbours(const part &part, side *sides)
{
    cudaIpcMemHandle_t own[2], theirs[2];

    CHECK(cudaIpcGetMemHandle(&own[0], part.now));
    CHECK(cudaIpcGetMemHandle(&own[1], part.next));
    for (int i = 0; i < 2; i++) {
        MPI_Sendrecv(own, sizeof own, MPI_BYTE, sides[1 - i].neighbour, 2, theirs, sizeof theirs, MPI_BYTE,
                     sides[i].neighbour, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Sendrecv(&part.rows, 1, MPI_INT, sides[1 - i].neighbour, 3, &sides[i].their_rows, 1, MPI_INT,
                     sides[i].neighbour, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int k = 0; k < 2 && sides[i].neighbour != MPI_PROC_NULL; k++) {
            CHECK(cudaIpcOpenMemHandle((void **)&sides[i].theirs[k], theirs[k],
                                       cudaIpcMemLazyEnablePeerAccess));
        }
    }
}

static void close_neighbours(const side *sides)
{
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < 2 && sides[i].theirs[k]; k++) {
            CHECK(cudaIpcCloseMemHandle(sides[i].theirs[k]));
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

/* The part after so many steps. */
static std::vector<float> run(part &part, int steps, bool alone, bool ipc)
{
    side sides[2] = {{alone || rank == 0 ? MPI_PROC_NULL : rank - 1, 1, 0},
                     {alone || rank == ranks - 1 ? MPI_PROC_NULL : rank + 1, part.rows, part.rows + 1}};
    std::vector<float> cells((size_t)part.rows * COLUMNS);

    for (side &side : sides) {
        CHECK(cudaMallocHost(&side.out, row_bytes));
        CHECK(cudaMallocHost(&side.in, row_bytes));
    }
    if (ipc) {
        open_neighbours(part, sides);
    }
    for (int s = 0; s < steps; s++) {
        launch(part, 1, 1, part.edges);
        launch(part, part.rows, part.rows > 1, part.edges);
        launch(part, 2, part.rows - 2, part.inside);
        if (ipc) {
            exchange_by_ipc(part, sides, s % 2);
        } else if (!alone) {
            exchange_by_host(part, sides);
        }
        CHECK(cudaStreamSynchronize(part.edges));
        CHECK(cudaStreamSynchronize(part.inside));
        std::swap(part.now, part.next);
    }
    if (ipc) {
        close_neighbours(sides);
    }
    for (side &side : sides) {
        CHECK(cudaFreeHost(side.out));
        CHECK(cudaFreeHost(side.in));
    }
    CHECK(cudaMemcpy(cells.data(), row(part.now, 1), cells.size() * sizeof(float), cudaMemcpyDeviceToHost));
    return cells;
}

/* A rank's place among those of its machine. */
static int local_rank(void)
{
    MPI_Comm machine;
    int local;

    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &machine);
    MPI_Comm_rank(machine, &local);
    MPI_Comm_free(&machine);
    return local;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    bool ipc = argc > 1 && strcmp(argv[argc - 1], "--ipc") == 0;
    struct example example = example_begin("halo", "[ROWS] [STEPS] [--ipc]", argc - ipc, argv);
    int rows = example_number(&example, 0, ranks, 1 << 16, 192),
        steps = example_number(&example, 1, 1, 100000, 60), devices = 0;
    int first = rows / ranks * rank + (rank < rows % ranks ? rank : rows % ranks);
    bool good = true;

    CHECK(cudaGetDeviceCount(&devices));
    CHECK(cudaSetDevice(local_rank() % devices));
    part own = make_part(first, rows / ranks + (rank < rows % ranks));
    std::vector<float> cells = run(own, steps, false, ipc), all(rank == 0 ? (size_t)rows * COLUMNS : 0);
    free_part(own);

    int count = (int)cells.size();
    std::vector<int> counts(ranks), places(ranks);
    MPI_Gather(&count, 1, MPI_INT, counts.data(), 1, MPI_INT, 0, MPI_COMM_WORLD);
    for (int i = 1; i < ranks; i++) {
        places[i] = places[i - 1] + counts[i - 1];
    }
    MPI_Gatherv(cells.data(), count, MPI_FLOAT, all.data(), counts.data(), places.data(), MPI_FLOAT, 0,
                MPI_COMM_WORLD);
    if (rank == 0) {
        part whole = make_part(0, rows);
        std::vector<float> expected = run(whole, steps, true, false);
        free_part(whole);
        good = memcmp(all.data(), expected.data(), all.size() * sizeof(float)) == 0;
        printf("%d ranks, %d rows, %d steps: the plate is %s\n", ranks, rows, steps,
               good ? "the same as of one rank" : "another");
    }
    MPI_Finalize();
    return rank == 0 ? example_end(&example, good) : 0;
}
