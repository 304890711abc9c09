/* The names that cases give to words, for reports, and the words that no run writes. */
#include "model/memory.h"

#include <stdio.h>

enum { NAMES = 64 };
static struct {
    uintptr_t from, to;
    const char *name;
} names[NAMES];
static uint32_t name_count;

void model_name(const volatile void *at, size_t bytes, const char *name)
{
    if (name_count == NAMES)
        model_fail("more than %d names", NAMES);
    names[name_count].from = (uintptr_t)at;
    names[name_count].to = (uintptr_t)at + bytes;
    names[name_count++].name = name;
}

static const char constant[] = "a constant";

void model_constant(const volatile void *at, size_t bytes)
{
    model_name(at, bytes, constant);
}

bool memory_is_constant(const struct op *op)
{
    if (memory_name(op->address) != constant)
        return false;
    if (op->kind != MODEL_LOAD)
        model_fail("a constant is written");
    return true;
}

const char *memory_name(uintptr_t address)
{
    static char text[32];
    for (uint32_t i = 0; i < name_count; i++)
        if (address >= names[i].from && address < names[i].to)
            return names[i].name;
    snprintf(text, sizeof text, "%#lx", (unsigned long)address);
    return text;
}
