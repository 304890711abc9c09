/* A call that creates something, and the wait for it: its result. NOW(comm_dup, c, NULL, &copy) */
#ifndef NOW_H
#define NOW_H

#include <commstream/commstream.h>

#define NOW(call, ...)                                                                                                                     \
    __extension__({                                                                                                                        \
        struct comm_request now_request = COMM_REQUEST_NONE;                                                                               \
        enum comm_result now_result = call(__VA_ARGS__, &now_request);                                                                     \
        now_result == COMM_OK ? comm_wait(now_request, COMM_FOREVER) : now_result;                                                         \
    })

#endif
