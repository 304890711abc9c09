/* Argument checks that the calls share. */
#include "api/api.h"

const char *api_name(const struct api_check *check)
{
    return check->name ? check->name : collective_name(check->collective);
}

void api_need(struct api_check *check, bool holds, const char *argument, long long value, const char *expected)
{
    if (holds || check->result != COMM_OK)
        return;
    check->result = engine_refuse(check->c, check->collective, COMM_ERR_ARGUMENT, check->req, "%s: %s=%lld; expected %s", api_name(check),
                                  argument, value, expected);
}

void api_need_type(struct api_check *check, enum comm_type type)
{
    api_need(check, data_type_bytes(type) != 0, "type", (long long)type, "an enum comm_type");
}

/* A user-defined operator works on bytes; the block must hold whole elements of it. A pre-multiplied sum works on its own type. */
static void need_user(struct api_check *check, enum comm_type type, comm_op op, size_t n)
{
    enum comm_type wanted = COMM_BYTE;
    size_t bytes = engine_op_bytes(check->c, op, &wanted);

    api_need(check, bytes != 0, "op", op, "an operator of this world that was not freed");
    api_need(check, type == wanted, "type", (long long)type,
             operator_is_premul(op) ? "the type that the pre-multiplied sum was made for"
                                    : "COMM_BYTE: the elements of an operator of your own are bytes");
    api_need(check, !bytes || n % bytes == 0, "n", (long long)n, "whole elements of the operator, counted in bytes");
}

void api_need_pair(struct api_check *check, enum comm_type type, comm_op op, size_t n)
{
    const char *why = "";

    if (check->result != COMM_OK)
        return;
    if (op & OPERATOR_USER) {
        need_user(check, type, op, n);
        return;
    }
    enum comm_result r = data_check(type, op, &why);
    if (r != COMM_OK)
        check->result = engine_refuse(check->c, check->collective, r, check->req, "%s: type=%s(%d) op=%s(%u): %s", api_name(check),
                                      data_type_name(type), (int)type, data_op_name(op), op, why);
}

void api_need_rank(struct api_check *check, const char *argument, int32_t rank)
{
    api_need(check, rank >= 0 && rank < engine_size(check->c), argument, rank, "a rank of the communicator, 0 to its size - 1");
}

void api_need_fit(struct api_check *check, bool fits, const char *argument, size_t value, const char *what)
{
    if (!fits && check->result == COMM_OK)
        check->result = engine_refuse(check->c, check->collective, COMM_ERR_ARGUMENT, check->req,
                                      "%s: %s=%zu; expected %s within the address space", api_name(check), argument, value, what);
}

size_t api_bytes_of(struct api_check *check, const char *argument, enum comm_type type, size_t n, size_t times)
{
    size_t bytes = data_type_bytes(type), all = 0;
    bool overflow = __builtin_mul_overflow(n, bytes, &all) || __builtin_mul_overflow(all, times, &all) || all > SIZE_MAX / 8;

    api_need_fit(check, !overflow, argument, n, "a length");
    return overflow ? 0 : all;
}

void api_need_buffer(struct api_check *check, const char *argument, const void *buf, size_t bytes)
{
    api_need(check, bytes == 0 || (buf && buf != COMM_IN_PLACE), argument, (long long)(intptr_t)buf, "a buffer");
}

void api_need_apart(struct api_check *check, const void *in, size_t in_bytes, const void *out, size_t out_bytes)
{
    struct timeline_range a = api_range(in, in_bytes), b = api_range(out, out_bytes);

    api_need(check, !timeline_meet(&a, &b), "in", (long long)(intptr_t)in, "no overlap with out (COMM_IN_PLACE says the same memory)");
}

enum comm_result api_size(const void *given, size_t least)
{
    size_t size = 0;

    if (!given)
        return COMM_ERR_ARGUMENT;
    __builtin_memcpy(&size, given, sizeof size);
    return size >= least ? COMM_OK : COMM_ERR_ARGUMENT;
}

bool api_sets_unknown(const void *given, size_t known)
{
    const unsigned char *byte = given;
    size_t size = 0;

    __builtin_memcpy(&size, given, sizeof size);
    for (size_t i = known; i < size; i++)
        if (byte[i])
            return true;
    return false;
}
