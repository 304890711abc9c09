/* The world of test_staged_messages.c and test_staged_messages_end.c: two ranks of this process, and messages between them. */
#ifndef STAGED_MESSAGES_H
#define STAGED_MESSAGES_H

#include "conform/rig.h"

#include "mock_everywhere.h"

enum { MESSAGE_RANKS = 2, MIB = 1 << 20 };

struct message {
    size_t bytes, room; /* of the send; of the receive */
    int from, to;
    bool from_device, to_device;
    bool any, recv_first; /* the receive is from any peer; it is posted before the send */
    uint32_t tag;
    unsigned char *out, *in; /* taken by message_take */
    struct comm_status status;
    struct comm_request sent, got;
};

extern struct rig messages_rig;

void messages_open(const char *options); /* NULL: the defaults */
void messages_close(void);
void message_take(struct message *m); /* memory */
void message_give(struct message *m);
void message_fill(struct message *m);                    /* with bytes that differ from those of all others */
void message_post(struct message *m);                    /* takes and fills the memory as well */
bool message_has(const struct message *m, size_t bytes); /* so many bytes of it have reached their memory, from the first on */
/* The send ends with OK, and the receive with OK or TRUNCATED. All bytes are there, or none, and none more. Gives the memory back. */
void message_ends_well(struct message *m);

void turn_before(int64_t end);                           /* a look of the host; fails after this time */
void step_when_there(bool to_device);                    /* looks until there is a copy in this direction, and runs it */
void store_until(const struct message *m, size_t bytes); /* looks, and runs copies to the device, until so many bytes are there */

/* Cases of test_staged_messages_end.c. */
void a_message_that_is_not_taken(void **state);
void a_receive_that_is_cancelled(void **state);
void a_full_queue(void **state);
void a_fault_at_every_call(void **state);
void faults_on_a_device_that_is_late(void **state);
void an_abort_in_the_middle(void **state);
void a_deadline_in_the_middle(void **state);
void a_device_of_the_receiver_that_stands(void **state);

#endif
