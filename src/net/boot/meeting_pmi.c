/*
 * The medium store:pmi: the store of hydra (MPICH, Intel MPI), flux and other launchers with version 1 of PMI's wire protocol. A message is
 * a line.
 *
 * If the process also uses MPI, both may send init, but after finalize the launcher ignores everything. A process that sent init and ends
 * without finalize has crashed in hydra's eyes, and hydra kills the other ranks. Therefore finalize is sent when the process exits.
 */
#include "net/boot/pmi.h"

#include "base/format.h"

#include <string.h>

enum { LINE = 1100, NAME = 280 }; /* values have at most 1,024 bytes, names of stores 256 */

static char store[NAME]; /* its name */

static enum comm_result hear(struct pmi_op *op, const char *expected)
{
    size_t at = 0, got = 0, length = strlen(expected);

    do {
        enum comm_result result = pmi_hear(op, op->answer + at, LINE - 1 - at, &got);
        if (result != COMM_OK)
            return result;
        at += got;
    } while (op->answer[at - 1] != '\n' && at < LINE - 1);
    bool whole = op->answer[at - 1] == '\n';
    op->answer[at - 1] = 0;
    if (!whole)
        return pmi_lose(op, COMM_ERR_SYSTEM, "the launcher's answer is too long", "");
    if (strlen(op->answer) != at - 1 || strncmp(op->answer, "cmd=", 4) != 0 || strncmp(op->answer + 4, expected, length) != 0 ||
        (op->answer[4 + length] && op->answer[4 + length] != ' '))
        return pmi_lose(op, COMM_ERR_SYSTEM, "another answer of the launcher was expected than ", op->answer);
    return COMM_OK;
}

static enum comm_result ask(struct pmi_op *op, const char *line, size_t bytes, const char *expected)
{
    if (bytes >= LINE)
        return pmi_lose(op, COMM_ERR_SYSTEM, "a line to the launcher is too long", "");
    enum comm_result result = pmi_say(op, line, bytes);
    if (result == COMM_OK)
        result = hear(op, expected);
    return result == COMM_OK ? pmi_judge(op) : result;
}

/* MPI may have sent init already; the launcher then replies again. */
static enum comm_result pmi1_begin(struct pmi_op *op)
{
    static const char init[] = "cmd=init pmi_version=1 pmi_subversion=1\n", name[] = "cmd=get_my_kvsname\n";
    size_t length;

    enum comm_result result = ask(op, init, sizeof init - 1, "response_to_init");
    if (result != COMM_OK)
        return result;
    result = ask(op, name, sizeof name - 1, "my_kvsname");
    const char *value = result == COMM_OK ? pmi_value(op, "kvsname", &length) : NULL;
    if (result == COMM_OK && (!value || !length || length >= sizeof store))
        return pmi_lose(op, COMM_ERR_SYSTEM, "the launcher's store has no name: ", op->answer);
    if (result != COMM_OK)
        return result;
    base_format(store, sizeof store, "%.*s", (int)length, value);
    pmi_must_say_goodbye(op);
    return COMM_OK;
}

static enum comm_result pmi1_fence(struct pmi_op *op)
{
    static const char line[] = "cmd=barrier_in\n";

    return ask(op, line, sizeof line - 1, "barrier_out");
}

static enum comm_result pmi1_put(struct pmi_op *op, const char *world, const char *value)
{
    char line[LINE];
    size_t bytes = base_format(line, sizeof line, "cmd=put kvsname=%s key=commstream.%s value=%s\n", store, world, value);
    enum comm_result result = ask(op, line, bytes, "put_result");

    crypto_wipe(line, sizeof line);
    return result;
}

static enum comm_result pmi1_get(struct pmi_op *op, const char *world)
{
    char line[NAME + 64];
    size_t bytes = base_format(line, sizeof line, "cmd=get kvsname=%s key=commstream.%s\n", store, world);

    return ask(op, line, bytes, "get_result");
}

static const struct pmi_protocol protocol = {.version = 1,
                                             .separator = ' ',
                                             .blank = '+',
                                             .newline = ';',
                                             .goodbye = "cmd=finalize\n",
                                             .barrier = "barrier",
                                             .begin = pmi1_begin,
                                             .put = pmi1_put,
                                             .fence = pmi1_fence,
                                             .get = pmi1_get};

static enum comm_result pmi1_write(const struct boot_config *config, const char *place, const struct meeting *m, char *why,
                                   size_t why_bytes)
{
    return pmi_write(&protocol, config, place, m, why, why_bytes);
}

static enum comm_result pmi1_read(const struct boot_config *config, const char *place, struct meeting *m, char *why, size_t why_bytes)
{
    return pmi_read(&protocol, config, place, m, why, why_bytes);
}

const struct meeting_medium meeting_pmi = {
    .prefix = "store:pmi", .noun = "the launcher's store, world ", .of_one_job = true, .write = pmi1_write, .read = pmi1_read};
