/*
 * The medium store:pmi2: the store of a launcher that uses version 2 of PMI's wire protocol (SLURM's srun --mpi=pmi2, hydra). The first
 * line is as in version 1. After it, a message is six characters with its length, then "cmd=NAME;KEY=VALUE;...;".
 *
 * The launcher lets a process begin only once. So a process whose MPI also uses version 2 over this descriptor cannot use this medium.
 */
#include "net/boot/pmi.h"

#include "base/format.h"

#include <string.h>

enum { HEAD = 6, BODY = PMI_ANSWER };

static enum comm_result receive(struct pmi_op *op, char *to, size_t bytes)
{
    enum comm_result result = COMM_OK;

    for (size_t at = 0, got = 0; result == COMM_OK && at < bytes; at += got)
        result = pmi_hear(op, to + at, bytes - at, &got);
    return result;
}

static enum comm_result hear(struct pmi_op *op, const char *name)
{
    char head[HEAD + 1] = "", start[64];
    uint64_t bytes;

    enum comm_result r = receive(op, head, HEAD);
    if (r != COMM_OK)
        return r;
    size_t blanks = strspn(head, " ");
    size_t digits = strspn(head + blanks, "0123456789");
    bool padded = digits && blanks + digits + strspn(head + blanks + digits, " ") == HEAD;
    head[blanks + digits] = 0;
    if (!padded || !base_parse_u64(head + blanks, &bytes) || !bytes || bytes >= sizeof op->answer)
        return pmi_lose(op, COMM_ERR_SYSTEM, "the launcher's answer has no length: ", head);
    r = receive(op, op->answer, bytes);
    if (r != COMM_OK)
        return r;
    op->answer[bytes] = 0;
    size_t length = base_format(start, sizeof start, "cmd=%s-response;", name);
    if (strlen(op->answer) != bytes || strncmp(op->answer, start, length) != 0)
        return pmi_lose(op, COMM_ERR_SYSTEM, "another answer of the launcher was expected than ", op->answer);
    return COMM_OK;
}

/* Sends a message and receives its reply. */
static enum comm_result ask(struct pmi_op *op, const char *name, const char *rest)
{
    char message[HEAD + BODY], head[HEAD + 1];
    size_t bytes = base_format(message + HEAD, BODY, "cmd=%s;%s", name, rest);

    if (bytes >= BODY - 1)
        return pmi_lose(op, COMM_ERR_SYSTEM, "a message to the launcher is too long", "");
    base_format(head, sizeof head, "%6u", (unsigned)bytes);
    memcpy(message, head, HEAD);
    enum comm_result r = pmi_say(op, message, HEAD + bytes);
    crypto_wipe(message, sizeof message);
    if (r == COMM_OK)
        r = hear(op, name);
    return r == COMM_OK ? pmi_judge(op) : r;
}

/* Exchanges one line of version 1, in which both sides give the version that follows. */
static enum comm_result agree_on_version(struct pmi_op *op)
{
    static const char init[] = "cmd=init pmi_version=2 pmi_subversion=0\n", start[] = "cmd=response_to_init ";
    size_t at = 0;
    enum comm_result r = pmi_say(op, init, sizeof init - 1);

    if (r != COMM_OK)
        return r;
    do {
        r = receive(op, op->answer + at, 1);
        if (r != COMM_OK)
            return r;
    } while (op->answer[at++] != '\n' && at < sizeof op->answer - 1);
    op->answer[at - 1] = 0;
    if (strncmp(op->answer, start, sizeof start - 1) != 0 || !strstr(op->answer, " pmi_version=2") || !strstr(op->answer, " rc=0"))
        return pmi_lose(op, COMM_ERR_SYSTEM, "the launcher does not speak version 2 of PMI: ", op->answer);
    return COMM_OK;
}

static enum comm_result pmi2_begin(struct pmi_op *op)
{
    const struct comm_env *env = op->config->env;
    const char *job = env->lookup(env, "PMI_JOBID"), *rank = env->lookup(env, "PMI_RANK");
    char rest[512];

    enum comm_result r = agree_on_version(op);
    base_format(rest, sizeof rest, "%s%s%spmirank=%s;threaded=FALSE;", job ? "pmijobid=" : "", job ? job : "", job ? ";" : "",
                rank ? rank : "0"); /* hydra exits on an empty value */
    if (r == COMM_OK)
        r = ask(op, "fullinit", rest);
    if (r == COMM_OK)
        pmi_must_say_goodbye(op);
    return r;
}

static enum comm_result pmi2_fence(struct pmi_op *op)
{
    return ask(op, "kvs-fence", "");
}

static enum comm_result pmi2_put(struct pmi_op *op, const char *world, const char *value)
{
    char rest[BODY];

    base_format(rest, sizeof rest, "key=commstream.%s;value=%s;", world, value);
    enum comm_result r = ask(op, "kvs-put", rest);
    crypto_wipe(rest, sizeof rest);
    return r;
}

static enum comm_result pmi2_get(struct pmi_op *op, const char *world)
{
    char rest[128];

    base_format(rest, sizeof rest, "srcid=-1;key=commstream.%s;", world);
    return ask(op, "kvs-get", rest);
}

static const struct pmi_protocol protocol = {.version = 2,
                                             .separator = ';',
                                             .blank = '+',
                                             .newline = '|',
                                             .goodbye = "    13cmd=finalize;",
                                             .barrier = "fence",
                                             .begin = pmi2_begin,
                                             .put = pmi2_put,
                                             .fence = pmi2_fence,
                                             .get = pmi2_get};

static enum comm_result pmi2_write(const struct boot_config *config, const char *place, const struct meeting *m, char *why,
                                   size_t why_bytes)
{
    return pmi_write(&protocol, config, place, m, why, why_bytes);
}

static enum comm_result pmi2_read(const struct boot_config *config, const char *place, struct meeting *m, char *why, size_t why_bytes)
{
    return pmi_read(&protocol, config, place, m, why, why_bytes);
}

const struct meeting_medium meeting_pmi2 = {
    .prefix = "store:pmi2", .noun = "the launcher's store, world ", .of_one_job = true, .write = pmi2_write, .read = pmi2_read};
