/* The requests of the honest side: made, ended, checked and dropped. */
#include "fuzz/honest_request.h"

#include <string.h>

enum { FILL = 0xa5 };

uint32_t honest_sum(const void *at, size_t bytes)
{
    return frame_crc32c(0, at, bytes);
}

static bool is_all(const unsigned char *at, size_t bytes, unsigned char value)
{
    bool all = true;

    for (size_t i = 0; i < bytes; i++)
        all &= at[i] == value;
    return all;
}

/* Nothing around the buffer was touched, and a finished request's buffer has not changed. */
static void check_request(const struct honest_request *r)
{
    if (r->memory) {
        HOLD(is_all(r->memory, HONEST_CANARY, FILL) && is_all(r->memory + HONEST_CANARY + r->bytes, HONEST_CANARY, FILL));
        HOLD(r->state != HONEST_ENDED || honest_sum(r->memory, r->bytes + 2 * HONEST_CANARY) == r->sum);
    } else if (r->state == HONEST_ENDED && r->view.at) {
        HOLD(honest_sum(r->view.at, r->view.bytes) == r->sum);
    }
}

void request_drop(struct honest_request *r)
{
    check_request(r);
    free(r->memory);
    *r = (struct honest_request){.state = HONEST_NONE};
}

static bool is_held(const struct honest_request *r)
{
    return r->state == HONEST_PENDING || (r->state == HONEST_ENDED && r->view.at);
}

struct honest_request *request_make(struct honest_side *s, enum honest_kind kind, wire_key key, uint32_t peer, size_t bytes, bool memory)
{
    struct honest *h = s->of;

    for (uint32_t i = 0; i < HONEST_REQUESTS; i++) {
        struct honest_request *r = &h->request[h->next];
        h->next = (h->next + 1) % HONEST_REQUESTS;
        if (is_held(r))
            continue;
        request_drop(r);
        *r = (struct honest_request){
            .state = HONEST_PENDING, .kind = kind, .side = s, .key = key, .peer = peer, .tag = HONEST_TAG, .bytes = bytes};
        if (memory) {
            r->memory = malloc(bytes + 2 * HONEST_CANARY);
            HOLD(r->memory);
            memset(r->memory, FILL, bytes + 2 * HONEST_CANARY);
        }
        return r;
    }
    return NULL;
}

uint64_t request_cookie(const struct honest_request *r)
{
    return 1 + (uint64_t)(r - r->side->of->request);
}

void request_end(struct honest_request *r, int32_t result)
{
    bool landed = (r->kind == HONEST_LOOK || r->kind == HONEST_TAKE) && r->memory && result == WIRE_DONE;

    HOLD(r->state == HONEST_PENDING && (result == WIRE_DONE || (result == WIRE_MISMATCH && r->kind == HONEST_LOOK)));
    HOLD(!landed || !memchr(r->memory + HONEST_CANARY, FILL, r->bytes)); /* the hostile peers never send this byte */
    if (result != WIRE_DONE)
        r->view.at = NULL;
    r->state = HONEST_ENDED;
    if (r->memory)
        r->sum = honest_sum(r->memory, r->bytes + 2 * HONEST_CANARY);
    else if (r->view.at)
        r->sum = honest_sum(r->view.at, r->view.bytes);
    HOLD(!r->view.at || r->view.bytes == r->bytes);
    check_request(r);
    r->side->of->ended += result == WIRE_DONE;
}

void request_answered(struct honest_request *r, enum wire_result result)
{
    if (result == WIRE_DONE || result == WIRE_MISMATCH)
        request_end(r, result);
    else if (result == WIRE_AGAIN || result == WIRE_FAILED || result == WIRE_NONE)
        request_drop(r);
    else
        HOLD(result == WIRE_PENDING);
}

struct honest_request *honest_pending(struct honest_side *s, enum honest_kind kind, uint32_t which)
{
    struct honest_request *found = NULL;
    uint32_t count = 0;

    for (int pass = 0; pass < 2; pass++)
        for (uint32_t i = 0, k = 0; i < HONEST_REQUESTS; i++) {
            struct honest_request *r = &s->of->request[i];
            if (r->state != HONEST_PENDING || r->kind != kind || r->side != s)
                continue;
            if (pass && k++ == which % count)
                found = r;
            count += !pass;
        }
    return found;
}

bool request_is_there(const struct honest_side *s, enum honest_kind kind, wire_key key, uint32_t peer)
{
    bool asked = false;

    for (uint32_t i = 0; i < HONEST_REQUESTS; i++) {
        const struct honest_request *r = &s->of->request[i];
        asked |= r->state != HONEST_NONE && r->kind == kind && r->side == s && r->key == key && (r->peer == peer || kind == HONEST_SHOW);
    }
    return asked;
}

void request_give_back(struct honest_request *r)
{
    check_request(r);
    r->view.at = NULL;
    if (r->view.ack)
        r->side->channel->class->release(r->side->channel, 0, &r->view);
    r->view.ack = NULL;
}
