/* Times MPI_Allreduce (f32, sum, in place), size by size: one source for all, so that only the library
 * differs.
 *
 * The sampling rules are those of `kolo bench all-reduce`: 5 rounds of warm-up, then batches of 20 samples
 * until the given seconds have passed on rank 0's clock, 2000 at most; a barrier stands before each sample
 * and the slowest rank counts. The result is checked before and after, outside the clock. Rank 0 prints one
 * JSON line a size.
 *
 * usage: mpi_all_reduce SIZES SECONDS     as in: mpi_all_reduce 4,1048576 1.0
 */
#include <errno.h>
#include <limits.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WARM_UP = 5, BATCH = 20, MOST_SAMPLES = 2000 };

static int rank, world;

static void fail(const char *what, long long value) {
    fprintf(stderr, "rank %d: %s: %lld\n", rank, what, value);
    MPI_Abort(MPI_COMM_WORLD, 1);
    exit(1);
}

static void all_reduce(float *buffer, int count) {
    MPI_Allreduce(MPI_IN_PLACE, buffer, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

/* Whole numbers, whose sum is exact in any order. */
static float value(int of_rank, int index) {
    return (float)(index % 251 + 7 * of_rank);
}

static void verify(float *buffer, int count) {
    for (int i = 0; i < count; i++) buffer[i] = value(rank, i);
    all_reduce(buffer, count);
    for (int i = 0; i < count; i++) {
        float expected = 0;
        for (int r = 0; r < world; r++) expected += value(r, i);
        if (buffer[i] != expected) fail("wrong sum in element", i);
    }
}

static double sample(float *buffer, int count) {
    MPI_Barrier(MPI_COMM_WORLD);
    double began = MPI_Wtime();
    all_reduce(buffer, count);
    return MPI_Wtime() - began;
}

/* How many samples were taken: rank 0 decides, or the ranks would stop at different counts. */
static int take_samples(float *buffer, int count, double seconds, double *samples) {
    int taken = 0, more = 1;
    for (int i = 0; i < WARM_UP; i++) sample(buffer, count);
    double until = MPI_Wtime() + seconds;
    while (more) {
        for (int i = 0; i < BATCH; i++) samples[taken++] = sample(buffer, count);
        more = MPI_Wtime() < until && taken + BATCH <= MOST_SAMPLES;
        MPI_Bcast(&more, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
    return taken;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The smallest sample that `percent` of them do not exceed, as Kolo takes it. */
static double percentile(const double *sorted, int count, int percent) {
    int place = (percent * count + 99) / 100;
    return sorted[place > 0 ? place - 1 : 0];
}

static void print_row(long long bytes, const double *sorted, int count) {
    double p50 = percentile(sorted, count, 50), p99 = percentile(sorted, count, 99);
    double algbw = (double)bytes / p50 / 1e9;
    printf("{\"bytes\": %lld, \"p50_us\": %.6g, \"p99_us\": %.6g, \"algbw_gbps\": %.6g, \"busbw_gbps\": %.6g, "
           "\"samples\": %d}\n",
           bytes, p50 * 1e6, p99 * 1e6, algbw, algbw * 2 * (world - 1) / world, count);
    fflush(stdout);
}

static void measure(long long bytes, double seconds) {
    static double samples[MOST_SAMPLES];
    int count = (int)(bytes / (long long)sizeof(float));
    float *buffer;
    MPI_Alloc_mem((MPI_Aint)bytes, MPI_INFO_NULL, &buffer);
    verify(buffer, count);
    /* Repeated sums of anything but zeros would leave the range of f32. */
    memset(buffer, 0, (size_t)bytes);
    int taken = take_samples(buffer, count, seconds, samples);
    verify(buffer, count);
    MPI_Free_mem(buffer);
    MPI_Allreduce(MPI_IN_PLACE, samples, taken, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    qsort(samples, (size_t)taken, sizeof *samples, ascending);
    if (rank == 0) print_row(bytes, samples, taken);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world);
    if (argc != 3) fail("usage: mpi_all_reduce SIZES SECONDS; arguments given", argc - 1);
    double seconds = atof(argv[2]);
    for (char *at = argv[1], *end; *at; at = *end ? end + 1 : end) {
        errno = 0;
        long long bytes = strtoll(at, &end, 10);
        if (errno || end == at || bytes < 4 || bytes % 4 || bytes / 4 > INT_MAX) fail("not a size", bytes);
        measure(bytes, seconds);
    }
    MPI_Finalize();
    return 0;
}
