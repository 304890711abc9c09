/* An event that the program sets itself: communication is queued before its data exist. The queue waits for the event; the program does
 * not. */
#include "must.h"

int main(void)
{
    struct comm_communicator *world;
    struct comm_event *filled, *done;
    struct comm_request request;
    int32_t value = -1, all = 0;
    must(comm_open(NULL, &world), "open");
    must(comm_event_create(world, &filled), "event");
    must(comm_event_create(world, &done), "event");

    must(comm_event_reset(filled), "reset");                  /* a point that only comm_event_set reaches */
    must(comm_queue_wait_event(world, filled), "queue wait"); /* what is issued from here on waits for it */
    must(comm_allreduce(world, &value, &all, 1, COMM_I32, COMM_MIN, &request), "allreduce");
    must(comm_event_record(done, world), "record"); /* a point after everything issued so far */

    expect(comm_test(request) == COMM_PENDING, "nothing passes a closed gate");
    expect(comm_event_query(done) == COMM_PENDING, "nor does what comes after it");
    value = 10 + comm_rank(world); /* the buffer is filled late, but before the event is set */
    must(comm_event_set(filled), "set");

    must(comm_event_sync(done, COMM_FOREVER), "sync");
    must(comm_test(request), "all before the event is complete");
    expect(all == 10, "the smallest is rank 0's");
    if (comm_rank(world) == 0)
        printf("events: min=%d\n", all);
    comm_event_free(filled);
    comm_event_free(done);
    must(comm_close(world, COMM_DEFAULT_TIMEOUT), "close");
    return 0;
}
