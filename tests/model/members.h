/* Two members of a channel over the explorer's memory, made as local and shm make them. */
#ifndef MODEL_MEMBERS_H
#define MODEL_MEMBERS_H

#include "model/explore.h"
#include "channel/shmchan.h"

struct members {
    struct shmchan_host *host[2];
    struct wire_channel *channel[2];
    struct wire_view view[2];
    char *lent; /* the second member's memory, one page for each of two rounds, which the first one can access */
    unsigned char landed[4 * SHMCHAN_PLACE_BYTES + 256], sent[4 * SHMCHAN_PLACE_BYTES + 256];
};
extern struct members *members;

void members_make(struct wire_limits limits);
/* The same over the case's own hosts, whose take, ring and sleepers are set. */
void members_join(struct shmchan_host *first, struct shmchan_host *second, struct wire_limits limits);
/* The first and last byte are seq + round. */
enum wire_result member_expose(uint32_t rank, wire_key key, uint16_t edge, size_t bytes);
enum wire_result member_view(uint32_t rank, wire_key key, uint16_t edge, uint16_t flags, size_t bytes, struct wire_view *view);
enum wire_result member_land(uint32_t rank, wire_key key, uint16_t edge, size_t bytes, void *land);
/* Stores seq + round into the ends of a stream's bytes: in the reader's landing place if it is announced, otherwise in
 * a place. */
enum wire_result member_store(uint32_t rank, wire_key key, size_t bytes);
/* Stores seq + round + edge into the ends of the view's place, and exposes that as the answer to the view. */
enum wire_result member_answer(uint32_t rank, wire_key key, size_t bytes, struct wire_view *view);

#endif
