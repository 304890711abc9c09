/*
 * pmi: what both versions of PMI's wire protocol have in common (Balaji et al., "PMI: A Scalable Parallel Process-Management Interface for
 * Extreme-Scale Systems", 2010; mpich/src/pmi). There is one request and one reply at a time over the descriptor PMI_FD. Other ranks see
 * what a rank has put after a barrier of all ranks. A message is KEY=VALUE pairs with a separator between them.
 */
#ifndef NET_BOOT_PMI_H
#define NET_BOOT_PMI_H

#include "net/boot/meeting.h"

enum { PMI_ANSWER = 2048 };

/* One call of the medium. */
struct pmi_op {
    const struct pmi_protocol *protocol;
    const struct boot_config *config;
    char *why;
    size_t why_bytes;
    int fd; /* PMI_FD */
    char answer[PMI_ANSWER];
};

/* A version. The functions send requests, and return OK if the launcher did what they ask for. */
struct pmi_protocol {
    int version;
    char separator;
    char blank, newline; /* stand for these in a value */
    const char *goodbye; /* the message that ends the session */
    const char *barrier; /* its name, for texts */
    enum comm_result (*begin)(struct pmi_op *op);
    enum comm_result (*put)(struct pmi_op *op, const char *world, const char *value);
    enum comm_result (*fence)(struct pmi_op *op);
    enum comm_result (*get)(struct pmi_op *op, const char *world); /* the reply has the key "value" */
};

/* The bodies of a medium's write and read. */
enum comm_result pmi_write(const struct pmi_protocol *protocol, const struct boot_config *config, const char *place,
                           const struct meeting *m, char *why, size_t why_bytes);
enum comm_result pmi_read(const struct pmi_protocol *protocol, const struct boot_config *config, const char *place, struct meeting *m,
                          char *why, size_t why_bytes);

/* Ends the session after a missing or malformed reply, since later replies could not be matched to requests. Returns the result. */
enum comm_result pmi_lose(struct pmi_op *op, enum comm_result result, const char *what, const char *detail);
/* Sends all bytes. */
enum comm_result pmi_say(struct pmi_op *op, const char *bytes, size_t count);
/* Receives at least one byte and at most `most`. */
enum comm_result pmi_hear(struct pmi_op *op, void *to, size_t most, size_t *got);
/* Whether the reply has no rc, or rc 0. */
enum comm_result pmi_judge(struct pmi_op *op);
/* The value of a key in the reply, which does not end with 0. NULL: the reply does not have the key. */
const char *pmi_value(const struct pmi_op *op, const char *key, size_t *length);
/* From now on a process that exits without the goodbye has crashed in the launcher's eyes, so it is sent at exit. */
void pmi_must_say_goodbye(struct pmi_op *op);

#endif
