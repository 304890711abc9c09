/* A rank that calls allreduce until a rank dies, and then prints the library's error. */
#include <commstream/comm.h>

#include <stdio.h>
#include <unistd.h>

int main(void)
{
    struct comm_communicator *world;
    struct comm_request request;
    struct comm_error error = {.size = sizeof error};
    enum comm_result result = comm_open(NULL, &world);
    double in[100] = {1}, out[100];

    if (result != COMM_OK)
        return 2;
    for (int i = 0; result == COMM_OK; i++) {
        result = comm_allreduce(world, in, out, 100, COMM_F64, COMM_SUM, &request);
        if (result == COMM_OK)
            result = comm_wait(request, COMM_FOREVER);
        if (i == 10) {
            printf("ready %ld\n", (long)getpid());
            fflush(stdout);
        }
    }
    if (comm_error_detail(world, &error) == COMM_OK)
        fprintf(stderr, "survivor %d: %s\n", comm_rank(world), error.text);
    return comm_close(world, COMM_DEFAULT_TIMEOUT) == COMM_OK ? 1 : 3;
}
